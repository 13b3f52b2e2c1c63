// The address of a view, in the hash so that it can be shared: #/, #/pairs/PAIR, #/pairs/PAIR/workloads/KEY.
export function parse(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  let decoded;
  try {
    decoded = parts.map(decodeURIComponent);
  } catch {
    return { name: "unknown" };
  }
  // A request would lose these, and go to the path of something else.
  if (decoded.some((part) => part === "." || part === "..")) return { name: "unknown" };
  if (decoded.length === 0) return { name: "pairs" };
  if (decoded[0] !== "pairs") return { name: "unknown" };
  if (decoded.length === 2) return { name: "pair", pair: decoded[1] };
  if (decoded.length === 4 && decoded[2] === "workloads") return { name: "workload", pair: decoded[1], key: decoded[3] };
  return { name: "unknown" };
}
