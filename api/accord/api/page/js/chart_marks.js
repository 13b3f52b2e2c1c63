// What charts show beside their series: error bars, the diagonal, marks of events, and shaded spans.
import { isNumber } from "./format.js";

function within(plot, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, devicePixelRatio || 1);
  ctx.restore();
}

function line(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

export function drawErrors(plot, series, colour) {
  const x = plot.data[0];
  within(plot, (ctx, pixel) => {
    ctx.lineWidth = 1.5 * pixel;
    series.forEach((one) => {
      if (!one.low) return;
      ctx.strokeStyle = colour(one.tone);
      one.low.forEach((low, i) => {
        if (!isNumber(low) || !isNumber(one.high[i])) return;
        const at = plot.valToPos(x[i], "x", true);
        const [bottom, top] = [plot.valToPos(low, "y", true), plot.valToPos(one.high[i], "y", true)];
        line(ctx, at, bottom, at, top);
        line(ctx, at - 4 * pixel, bottom, at + 4 * pixel, bottom);
        line(ctx, at - 4 * pixel, top, at + 4 * pixel, top);
      });
    });
  });
}

export function drawDiagonal(plot, colour) {
  within(plot, (ctx, pixel) => {
    ctx.strokeStyle = colour("muted");
    ctx.lineWidth = pixel;
    ctx.setLineDash([4 * pixel, 4 * pixel]);
    const at = (value, scale) => plot.valToPos(value, scale, true);
    line(ctx, at(0, "x"), at(0, "y"), at(1, "x"), at(1, "y"));
  });
}

// A line and a letter each; the letters are explained below the chart.
export function drawMarks(plot, marks, colour, font) {
  if (!marks?.length) return;
  const { ctx, bbox } = plot;
  const pixel = devicePixelRatio || 1;
  ctx.save();
  ctx.font = font.replace(/^12px/, `bold ${11 * pixel}px`);
  ctx.textAlign = "center";
  ctx.lineWidth = 1.5 * pixel;
  let last = -Infinity;
  for (const mark of [...marks].sort((a, b) => a.at - b.at)) {
    const at = plot.valToPos(mark.at, "x", true);
    if (at < bbox.left - 1 || at > bbox.left + bbox.width + 1) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(mark.tone);
    ctx.setLineDash(mark.dash ? mark.dash.map((length) => length * pixel) : []);
    line(ctx, at, bbox.top, at, bbox.top + bbox.height);
    if (at - last > 10 * pixel) {
      ctx.fillText(mark.label, at, bbox.top - 3 * pixel);
      last = at;
    }
  }
  ctx.restore();
}

export function drawSpans(plot, spans, colour) {
  if (!spans?.length) return;
  within(plot, (ctx) => {
    ctx.fillStyle = colour("span");
    for (const { from, to } of spans) {
      const [left, right] = [plot.valToPos(from, "x", true), plot.valToPos(to, "x", true)];
      ctx.fillRect(left, plot.bbox.top, Math.max(2, right - left), plot.bbox.height);
    }
  });
}
