"""All Lua of accord: a script's docstring is its contract, `KEYS | ARGV -> reply`.

Redis does not roll a script back, so every script makes all its checks before its first write. The client repeats a
command whose reply was lost, so every script gives the same answer, and changes nothing more, when it runs twice.
Time is Redis' own. Integers travel as text; versions and milliseconds stay below 2^53, where Lua counts exactly.

Mixed versions: a change of a script's signature needs no care, as scripts are named by their content; a change of
what a script stores needs a note in the changelog and a reader of both forms.
"""

from __future__ import annotations

_HEAD = "#!lua flags=allow-oom\n"
"""Scripts run without memory too: leases must be kept and commits made, for only a commit trims the stream."""

_NOW = """
local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
"""

CLOCK = _HEAD + _NOW + "return now_ms()"
"""KEYS any key of the node that is asked | ARGV none -> unix ms by that node's clock."""

ACQUIRE = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms')
if held[1] and tonumber(held[3]) > now then
  if held[1] ~= ARGV[1] then return false end
  redis.call('HSET', KEYS[1], 'expires_ms', string.format('%.0f', now + tonumber(ARGV[2])))
  return tonumber(held[2])
end
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'expires_ms', string.format('%.0f', now + tonumber(ARGV[2])))
return fence
"""
)
"""KEYS lease | ARGV owner, ttl ms -> the fence, or nil while somebody else holds the lease.

The holder keeps its fence; whoever takes a lapsed or released lease, the former holder included, gets the next one.
"""

RENEW = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] or tonumber(held[3]) <= now then return 0 end
redis.call('HSET', KEYS[1], 'expires_ms', string.format('%.0f', now + tonumber(ARGV[3])))
return 1
"""
)
"""KEYS lease | ARGV owner, fence, ttl ms -> 1 when extended, 0 when it lapsed or passed to somebody else."""

RELEASE = (
    _HEAD
    + """
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'expires_ms', '0')
return 1
"""
)
"""KEYS lease | ARGV owner, fence -> 1 when the lease is free now, 0 when it passed to somebody else."""

HOLDER = (
    _HEAD
    + _NOW
    + """
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms')
if not held[1] then return false end
local left = tonumber(held[3]) - now_ms()
if left <= 0 then return false end
return {held[1], held[2], held[3], string.format('%.0f', left)}
"""
)
"""KEYS lease | ARGV none -> {owner, fence, expires_ms, ms left}, or nil when nobody holds the lease."""

ANNOUNCE = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
return 1
"""
)
"""KEYS learners | ARGV learner, ttl ms -> 1. Prunes the lapsed."""

ALIVE = _HEAD + _NOW + "return redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now_ms()), '+inf')"
"""KEYS learners | ARGV none -> ids of the learners whose announcement has not lapsed."""

COMMIT = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
local stored = redis.call('HMGET', KEYS[2], 'watermark', 'commit')
local watermark = stored[1] or '0-0'
if stored[2] == ARGV[5] then return {'already', watermark} end

local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return {'fence', (held[1] or 'nobody') .. ' holds fence ' .. (held[2] or '0')}
end
if tonumber(held[3]) <= now then return {'fence', 'lapsed'} end
if watermark ~= ARGV[3] then return {'watermark', watermark} end

local first = 15
local version = redis.call('HGET', KEYS[3], 'version') or '-1'
for i = first, #ARGV, 5 do
  if tonumber(ARGV[i]) <= tonumber(version) then return {'version', ARGV[i] .. ' after ' .. version} end
  version = ARGV[i]
end
-- A key of a wrong type fails here, before the first write.
redis.call('XLEN', KEYS[4])
redis.call('XLEN', KEYS[5])

redis.call('HSET', KEYS[2], 'watermark', ARGV[4], 'commit', ARGV[5], 'sequences', ARGV[8], 'counters', ARGV[9],
  'version', ARGV[10], 'committed_ms', string.format('%.0f', now))
if ARGV[6] == '1' then redis.call('HSET', KEYS[2], 'body', ARGV[7]) end
for i = first, #ARGV, 5 do
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[12], '*',
    'version', ARGV[i], 'published_ms', ARGV[i + 3], 'table', ARGV[i + 1], 'entry', ARGV[i + 4])
end
redis.call('XTRIM', KEYS[5], 'MINID', '=', ARGV[11])
if #ARGV >= first then
  local last = #ARGV - 4
  redis.call('HSET', KEYS[3], 'version', ARGV[last], 'body', ARGV[last + 1], 'etag', ARGV[last + 2],
    'published_ms', ARGV[last + 3])
  redis.call('PUBLISH', ARGV[13], ARGV[14] .. ' ' .. ARGV[last])
end
return {'ok', ARGV[4]}
"""
)
"""KEYS lease, state, coefficients, history, rounds
| ARGV 1 owner, 2 fence, 3 expected watermark, 4 new watermark, 5 commit id, 6 '1' when a body follows, 7 body,
8 sequences, 9 counters, 10 version, 11 first id to keep in rounds, 12 length of the history, 13 channel, 14 pair id,
then for each publication: version, table, etag, published_ms, history entry
-> {'ok', watermark} when applied; {'already', watermark} when the last commit was this very one (a retry);
or, with nothing written, {'fence', why}, {'watermark', the stored one}, {'version', which after which}.
"""

BRING_BACK = (
    _HEAD
    + """
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
if #redis.call('XRANGE', KEYS[2], '-', '(' .. ARGV[3] .. '-0', 'COUNT', 1) > 0 then return 0 end
local ahead = redis.call('XRANGE', KEYS[2], ARGV[3], '+', 'COUNT', ARGV[4])
if #ahead == 0 then return 0 end
redis.call('DEL', KEYS[2])
for _, entry in ipairs(ahead) do redis.call('XADD', KEYS[2], '*', unpack(entry[2])) end
return #ahead
"""
)
"""KEYS lease, rounds | ARGV owner, fence, limit ms, most entries -> how many entries were brought back to the present.

For a stream whose newest ids lie in the future: Redis gives every later entry an id behind them. Once nothing below the
limit is left, the stream is made anew with the same entries in the same order and ids of now. A repeated call finds
none to move.
"""
