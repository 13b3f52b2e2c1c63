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

_PAYLOAD = """
local function payload(entry)
  local found = ''
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'd' then found = entry[2][i + 1] end
  end
  return found
end
"""
"""What is read of an entry. Only this is copied: Lua cannot pass on all that an entry may hold."""

CLOCK = _HEAD + _NOW + "return now_ms()"
"""KEYS any key of the node that is asked | ARGV none -> unix ms by that node's clock."""

ACQUIRE = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms', 'granted_ms')
local expires, granted = tonumber(held[3] or '0') or 0, tonumber(held[4] or '0') or 0
if granted > now then
  expires = now + math.max(expires - granted, 0)
  redis.call('HSET', KEYS[1], 'expires_ms', string.format('%.0f', expires), 'granted_ms', string.format('%.0f', now))
end
-- No learner is granted more: whatever holds a pair for longer was not written by one. Older ones do not say when.
if granted > 0 then expires = math.min(expires, math.min(granted, now) + math.max(600000, tonumber(ARGV[2]))) end
local until_ms, at_ms = string.format('%.0f', now + tonumber(ARGV[2])), string.format('%.0f', now)
if held[1] and expires > now then
  if held[1] ~= ARGV[1] then return false end
  redis.call('HSET', KEYS[1], 'expires_ms', until_ms, 'granted_ms', at_ms)
  return tonumber(held[2])
end
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'expires_ms', until_ms, 'granted_ms', at_ms)
return fence
"""
)
"""KEYS lease | ARGV owner, ttl ms -> the fence, or nil while somebody else holds the lease.

The holder keeps its fence; whoever takes a lapsed or released lease, the former holder included, gets the next one. A
lease granted after now, by a clock that has gone back since, lasts as long as it was granted for, from now on: that of
a dead owner would otherwise last as long as the jump was. None lasts longer than ten minutes, or the ttl asked for.
"""

RENEW = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] or (tonumber(held[3]) or 0) <= now then return 0 end
redis.call('HSET', KEYS[1], 'expires_ms', string.format('%.0f', now + tonumber(ARGV[3])),
  'granted_ms', string.format('%.0f', now))
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
local left = (tonumber(held[3]) or 0) - now_ms()
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
local longest = string.format('%.0f', now + 10 * tonumber(ARGV[2]))
for _, learner in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. longest, '+inf')) do
  redis.call('ZADD', KEYS[1], longest, learner)
end
return 1
"""
)
"""KEYS learners | ARGV learner, ttl ms -> 1. Prunes the lapsed.

An announcement that lasts ten times longer than this one was made before the clock went back: it is cut to that, or a
dead learner would count for as long as the jump was.
"""

ALIVE = _HEAD + _NOW + "return redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now_ms()), '+inf')"
"""KEYS learners | ARGV none -> ids of the learners whose announcement has not lapsed."""

COMMIT = (
    _HEAD
    + _NOW
    + """
local now = now_ms()
local stored = redis.call('HMGET', KEYS[2], 'watermark', 'commit')
local watermark = stored[1] or '0-0'
local version, first = redis.call('HGET', KEYS[3], 'version') or '-1', 19
-- Coefficients that were lost since are published once more, by what may be the same commit.
local served = #ARGV < first or (tonumber(version) or -1) >= tonumber(ARGV[#ARGV - 4])
if stored[2] == ARGV[5] and served then return {'already', watermark} end

local held = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires_ms')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return {'fence', (held[1] or 'nobody') .. ' holds fence ' .. (held[2] or '0')}
end
if (tonumber(held[3]) or 0) <= now then return {'fence', 'lapsed'} end
if watermark ~= ARGV[3] then return {'watermark', watermark} end
if ARGV[15] ~= '' then
  local revision = redis.call('HGET', KEYS[6], 'revision') or '0'
  if revision ~= ARGV[15] then return {'overrides', revision .. ' instead of ' .. ARGV[15]} end
end

for i = first, #ARGV, 5 do
  if tonumber(ARGV[i]) <= tonumber(version) then return {'version', ARGV[i] .. ' after ' .. version} end
  version = ARGV[i]
end
-- A key of a wrong type fails here, before the first write.
redis.call('XLEN', KEYS[4])
redis.call('XLEN', KEYS[5])

-- First, as a stream whose last id is the last one that there is takes nothing: then nothing is written at all.
for i = first, #ARGV, 5 do
  redis.call('XADD', KEYS[4], '*',
    'version', ARGV[i], 'published_ms', ARGV[i + 3], 'table', ARGV[i + 1], 'entry', ARGV[i + 4])
end
redis.call('HSET', KEYS[2], 'watermark', ARGV[4], 'commit', ARGV[5], 'sequences', ARGV[8], 'counters', ARGV[9],
  'version', ARGV[10], 'committed_ms', string.format('%.0f', now))
if ARGV[6] == '1' then redis.call('HSET', KEYS[2], 'body', ARGV[7]) end
redis.call('XTRIM', KEYS[4], 'MAXLEN', '=', ARGV[12])
if ARGV[18] ~= '0' then
  local oldest = now - tonumber(ARGV[18])
  local newest = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
  -- What is in force stays, however old it is.
  if newest[1] then oldest = math.min(oldest, tonumber(string.match(newest[1][1], '^%d+'))) end
  if oldest > 0 then redis.call('XTRIM', KEYS[4], 'MINID', '=', string.format('%.0f', oldest)) end
end
redis.call('XTRIM', KEYS[5], 'MINID', '=', ARGV[11])
if ARGV[16] == '0' then redis.call('HDEL', KEYS[3], 'learnt') end
if ARGV[16] == '1' then redis.call('HSET', KEYS[3], 'learnt', ARGV[17]) end
if #ARGV >= first then
  local last = #ARGV - 4
  redis.call('HSET', KEYS[3], 'version', ARGV[last], 'body', ARGV[last + 1], 'etag', ARGV[last + 2],
    'published_ms', ARGV[last + 3])
  redis.call('PUBLISH', ARGV[13], ARGV[14] .. ' ' .. ARGV[last])
end
return {'ok', ARGV[4]}
"""
)
"""KEYS lease, state, coefficients, history, rounds, overrides
| ARGV 1 owner, 2 fence, 3 expected watermark, 4 new watermark, 5 commit id, 6 '1' when a body follows, 7 body,
8 sequences, 9 counters, 10 version, 11 first id to keep in rounds, 12 most history entries, 13 channel, 14 pair id,
15 expected revision of the overrides ('' when it does not matter), 16 '1' when a learnt table follows, '0' to drop the
stored one, '' to leave it, 17 learnt table, 18 greatest age of history in ms ('0' for any),
then for each publication: version, table, etag, published_ms, history entry
-> {'ok', watermark} when applied; {'already', watermark} when the last commit was this very one (a retry) and what it
published was not lost since; or, with nothing written, {'fence', why}, {'watermark', the stored one},
{'overrides', which instead of which}, {'version', which after which}.
"""

STANDING = (
    _HEAD
    + _NOW
    + """
local c = redis.call('HMGET', KEYS[1], 'version', 'body', 'published_ms', 'learnt')
local o = redis.call('HMGET', KEYS[2], 'revision', 'overrides')
return {string.format('%.0f', now_ms()), c[1], c[2], c[3], c[4], o[1], o[2]}
"""
)
"""KEYS coefficients, overrides | ARGV none
-> {unix ms, version, body, published_ms, learnt, revision, overrides}, nil for each that is absent.
"""

APPLY = (
    _HEAD
    + """
local o = redis.call('HMGET', KEYS[2], 'revision', 'change')
if o[2] == ARGV[1] then return {'already', ARGV[4]} end
local revision = o[1] or '0'
if revision ~= ARGV[2] then
  -- Somebody may have changed something else since this very change was applied and its reply was lost.
  for _, entry in ipairs(redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 32)) do
    if entry[2][1] == 'change' and entry[2][2] == ARGV[1] then return {'already', ARGV[4]} end
  end
  return {'overrides', revision .. ' instead of ' .. ARGV[2]}
end
local version = redis.call('HGET', KEYS[1], 'version') or '0'
if version ~= ARGV[3] then return {'version', version .. ' instead of ' .. ARGV[3]} end
-- A key of a wrong type fails here, before the first write.
redis.call('XLEN', KEYS[3])
redis.call('XLEN', KEYS[4])

-- First, as a stream whose last id is the last one that there is takes nothing.
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[14], '*',
  'version', ARGV[6], 'published_ms', ARGV[9], 'table', ARGV[7], 'entry', ARGV[12])
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[15], '*', 'change', ARGV[1], 'entry', ARGV[13])
redis.call('HSET', KEYS[2], 'revision', ARGV[4], 'change', ARGV[1], 'overrides', ARGV[5])
redis.call('HSET', KEYS[1], 'version', ARGV[6], 'body', ARGV[7], 'etag', ARGV[8], 'published_ms', ARGV[9])
if ARGV[10] == '' then redis.call('HDEL', KEYS[1], 'learnt') else redis.call('HSET', KEYS[1], 'learnt', ARGV[10]) end
if ARGV[11] == '' then
  redis.call('HDEL', KEYS[1], 'expires_ms')
else
  redis.call('HSET', KEYS[1], 'expires_ms', ARGV[11])
end
redis.call('PUBLISH', ARGV[16], ARGV[17] .. ' ' .. ARGV[6])
return {'ok', ARGV[4]}
"""
)
"""KEYS coefficients, overrides, history, audit
| ARGV 1 change id, 2 expected revision, 3 expected version, 4 new revision, 5 overrides, 6 new version, 7 table,
8 etag, 9 published_ms, 10 learnt table ('' for none), 11 earliest expiry in unix ms ('' for none), 12 history entry,
13 audit entry, 14 most history entries, 15 most audit entries, 16 channel, 17 pair id
-> {'ok', revision} when applied; {'already', revision} when this very change was applied before (a retry);
or, with nothing written, {'overrides', which instead of which}, {'version', which instead of which}.
"""

BY_VERSION = (
    _HEAD
    + """
local wanted = tonumber(ARGV[1])
local function ms(entry) return tonumber(string.match(entry[1], '^%d+')) end
local function version(entry)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'version' then return tonumber(entry[2][i + 1]) or -1 end
  end
  return -1
end
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
if #oldest == 0 then return false end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local low, high = ms(oldest[1]), ms(newest[1])
-- Versions grow with the ids: the first millisecond whose last entry is not older than the wanted one.
while low < high do
  local middle = math.floor((low + high) / 2)
  local last = redis.call('XREVRANGE', KEYS[1], string.format('%.0f', middle), '-', 'COUNT', 1)
  if last[1] and version(last[1]) >= wanted then high = middle else low = middle + 1 end
end
local at = string.format('%.0f', low)
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], at, at)) do
  if version(entry) == wanted then return {entry[1], entry[2]} end
end
return false
"""
)
"""KEYS history | ARGV version -> {id, fields} of the entry of a version, nil when it is not there (any more)."""

HISTORY = (
    _HEAD
    + """
local found = redis.call('XREVRANGE', KEYS[1], ARGV[1], '-', 'COUNT', ARGV[2])
local slim = {}
for n, entry in ipairs(found) do
  local of = {}
  for i = 1, #entry[2], 2 do of[entry[2][i]] = entry[2][i + 1] end
  slim[n] = {entry[1], of['version'] or false, of['published_ms'] or false, of['entry'] or false}
end
return slim
"""
)
"""KEYS history | ARGV from which id, most entries -> {id, version, published_ms, entry} each, newest first, without the
tables, which are nearly all of the bytes."""

BRING_BACK = (
    _HEAD
    + _PAYLOAD
    + """
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
if #redis.call('XRANGE', KEYS[2], '-', '(' .. ARGV[3] .. '-0', 'COUNT', 1) > 0 then return 0 end
local ahead = redis.call('XRANGE', KEYS[2], ARGV[3], '+', 'COUNT', ARGV[4])
if #ahead == 0 then return 0 end
local now, earliest, tick, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local first = math.max(earliest, (math.floor(now / tick) - math.floor((#ahead - 1) / most)) * tick)
redis.call('DEL', KEYS[2])
for i, entry in ipairs(ahead) do
  local ms = first + math.floor((i - 1) / most) * tick
  redis.call('XADD', KEYS[2], string.format('%.0f', ms) .. '-*', 'd', payload(entry))
end
return #ahead
"""
)
"""KEYS lease, rounds | ARGV owner, fence, limit ms, most entries, ms of now, earliest ms, ms of a tick, most entries of
a tick -> how many entries were brought back to the present.

For a stream whose newest ids lie in the future: Redis gives every later entry an id behind them. Once nothing below the
limit is left, the stream is made anew with the same entries in the same order and ids of now. A repeated call finds
none to move.
"""

REOPEN = (
    _HEAD
    + """
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] or redis.call('XLEN', KEYS[2]) > 0 then return 0 end
local info, last = redis.pcall('XINFO', 'STREAM', KEYS[2]), '0-0'
if info['err'] then return 0 end
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
if tonumber(string.match(last, '^(%d+)')) < tonumber(ARGV[3]) then return 0 end
redis.call('XSETID', KEYS[2], ARGV[4] .. '-0')
return 1
"""
)
"""KEYS lease, rounds | ARGV owner, fence, limit ms, ms of now -> 1 when the last id of an empty stream lay at or behind
the limit and is at now; else 0, with nothing done.

Whoever may append may name the last id there is, and trim the stream with the same command.
"""

_READING = "#!lua flags=no-writes,allow-oom\n"

READ = (
    _READING
    + _PAYLOAD
    + """
local left, budget, longest = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found, start, bytes = {'0'}, ARGV[1], 0
while left > 0 do
  local page = redis.call('XRANGE', KEYS[1], start, ARGV[6], 'COUNT', math.min(left, 32))
  for _, entry in ipairs(page) do
    local body = payload(entry)
    if #body > longest then body = ARGV[5] .. string.format('%.0f', #body) end
    found[#found + 1], found[#found + 2] = entry[1], body
    bytes, left = bytes + #body, left - 1
    if bytes >= budget then
      found[1] = '1'
      return found
    end
  end
  if #page < 32 then break end
  start = '(' .. page[#page][1]
end
return found
"""
)
"""KEYS rounds | ARGV from which id, most entries, most bytes, longest payload, a word, up to which id
-> {'1' when there may be more than fitted into the bytes, else '0', id, payload, id, payload, ...}, oldest first.

At least one entry comes, if there is any. Instead of a payload that is too long come the word and how long it is.
"""

ENGINES = (
    _READING
    + """
local most, longest, budget = 2 * tonumber(ARGV[1]) + 1, tonumber(ARGV[2]), tonumber(ARGV[3])
local found, cursor, bytes = {redis.call('HLEN', KEYS[1])}, '0', 0
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 200)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local name, status = page[2][i], page[2][i + 1]
    if #name <= longest and #found < most and bytes < budget then
      if #status > longest then status = '' end
      found[#found + 1], found[#found + 2] = name, status
      bytes = bytes + #name + #status
    end
  end
until cursor == '0' or #found >= most or bytes >= budget
return found
"""
)
"""KEYS engines, or the register of pairs | ARGV most entries, longest value, most bytes
-> {how many there are, name, value, name, value, ...}.

A value that is too long comes as ''. An entry may come twice.
"""

SWEEP = (
    _HEAD
    + """
local page, longest, gone = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2]), tonumber(ARGV[3]), 0
local found = {page[1], 0}
for i = 1, #page[2], 2 do
  local name, status = page[2][i], page[2][i + 1]
  if #name > 128 or #status > longest or not string.find(name, '^%w[%w._/:%-]*$') then
    gone = gone + redis.call('HDEL', KEYS[1], name)
  else
    found[#found + 1], found[#found + 2] = name, status
  end
end
found[2] = gone
return found
"""
)
"""KEYS engines | ARGV cursor ('0' to begin), about how many to look at, longest status
-> {the next cursor ('0' at the end), how many were deleted because no engine writes such a name or so long a status,
name, status, name, status, ...}.
"""

RIGHTS = """
local may = {}
for i = 1, #ARGV, 2 do
  if ARGV[i] == 'XADD' then may[#may + 1] = redis.acl_check_cmd('XADD', ARGV[i + 1], '*', 'd', '') and 1 or 0
  else may[#may + 1] = redis.acl_check_cmd(ARGV[i], ARGV[i + 1], 'f', 'v') and 1 or 0 end
end
return may
"""
"""KEYS the register of pairs | ARGV command, key, command, key, ... -> 1 or 0 for each: may this user run it."""

MOVE_ON = (
    _HEAD
    + _PAYLOAD
    + """
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
local info, last = redis.pcall('XINFO', 'STREAM', KEYS[2]), '0-0'
if info['err'] then return 0 end
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
local ms, target, limit, tick = tonumber(string.match(last, '^(%d+)')), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[6]
if ARGV[5] == '' then
  if ms >= target then return ms < limit and ms or target end
  redis.call('XSETID', KEYS[2], ARGV[3] .. '-0')
  return target
end
if ms >= limit then
  local most, per = tonumber(ARGV[8]), tonumber(ARGV[7])
  local waiting = redis.call('XRANGE', KEYS[2], '(' .. ARGV[5], '+', 'COUNT', most + 1)
  if #waiting == 0 or #waiting > most then return 0 end
  redis.call('DEL', KEYS[2])
  ms = target
  for i, entry in ipairs(waiting) do
    ms = target + math.floor((i - 1) / per) * tick
    redis.call('XADD', KEYS[2], string.format('%.0f', ms) .. '-*', 'd', payload(entry))
  end
  return ms
end
if ms >= target then target = (math.floor(ms / tick) + 1) * tick end
local behind, moved = '(' .. string.format('%.0f', target) .. '-0', false
while true do
  local late = redis.call('XRANGE', KEYS[2], '(' .. ARGV[5], behind, 'COUNT', ARGV[7])
  if #late == 0 then return target end
  if moved then target = target + tick end
  moved = true
  for _, entry in ipairs(late) do
    redis.call('XADD', KEYS[2], string.format('%.0f', target) .. '-*', 'd', payload(entry))
    redis.call('XDEL', KEYS[2], entry[1])
  end
end
"""
)
"""KEYS lease, rounds | ARGV owner, fence, ms, limit ms, watermark or '', ms of a tick, most entries of a tick, most
entries beside an id beyond the limit -> where later entries' ids begin now, in ms: at the given one, or where the last
id is already.

For a store whose clock went back: Redis gives later entries ids behind the last one, also when that lies beyond the
limit and was given by nobody's clock. With a watermark, what waits behind it gets new ids too, in order, of ticks of
its own: all of it, in a stream that is made anew, when the last id lies beyond the limit. 0, and nothing is done, when
too many wait beside such an id, when the lease has passed on, or without a stream.
"""
