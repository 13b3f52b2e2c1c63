// The published model on the page: P(accept) = sigmoid(slopes . x(f) + intercepts[k]), f = logit(q_max).

export const logit = (q) => Math.min(40, Math.max(-40, Math.log(q / (1 - q))));
export const sigmoid = (z) => 1 / (1 + Math.exp(-z));

export function predict(row, knots, position, q) {
  const f = logit(q);
  const basis = [f, ...knots.map((knot) => Math.max(f - knot, 0))];
  const z = row.slopes.reduce((sum, slope, i) => sum + slope * (basis[i] ?? 0), row.intercepts[position] ?? 0);
  return sigmoid(z);
}

export const shifted = (row, by) => ({ ...row, intercepts: row.intercepts.map((value) => value + by) });

// Whether two rows predict visibly different probabilities somewhere; learnt rows always run a little ahead of published ones.
export function apart(a, b, knots) {
  const grid = [0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95];
  return a.intercepts.some((_, k) => grid.some((q) => Math.abs(predict(a, knots, k, q) - predict(b, knots, k, q)) > 0.01));
}
