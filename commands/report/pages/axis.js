// Ticks of the axes and their labels.

function ticks(from, to, count) {
  const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((step) => step * power).find((step) => step >= 0.8 * rough);
  const found = [];
  for (let tick = Math.ceil(from / size - 1e-9); tick * size <= to * (1 + 1e-12) + size * 1e-9; tick++) found.push(Number((tick * size).toPrecision(12)));
  return found;
}

function timeTicks(from, to, count) {
  const sizes = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const size = sizes.find((one) => (to - from) / one <= count) || 86400 * Math.ceil((to - from) / 86400 / count);
  const found = [];
  for (let tick = Math.ceil(from / size); tick * size <= to; tick++) found.push(tick * size);
  return found;
}

function timeLabel(seconds, span) {
  const sign = (value) => String(value).padStart(2, "0");
  if (span > 4 * 86400) return `${number(seconds / 86400, 3)} d`;
  const h = Math.floor(seconds / 3600), m = Math.floor(seconds / 60) % 60;
  return span > 7200 ? `${h}:${sign(m)} h` : `${Math.floor(seconds / 60)}:${sign(Math.round(seconds % 60))}`;
}

function axisLabel(value, span) {
  if (view.axis === "time") return timeLabel(value, span);
  return value >= 1e6 ? `${number(value / 1e6, 3)}M` : value >= 1e4 ? `${number(value / 1e3, 3)}k` : String(value);
}

function xTicks(from, to, width) {
  const count = Math.max(2, Math.floor(width / 80));
  return view.axis === "time" ? timeTicks(from, to, count) : ticks(from, to, count).filter(Number.isInteger);
}

function logTicks(from, to) {
  const first = Math.ceil(Math.log10(from) - 1e-9), last = Math.floor(Math.log10(to) + 1e-9), step = Math.max(1, Math.ceil((last - first) / 4));
  const found = [];
  for (let power = first; power <= last; power += step) found.push(10 ** power);
  if (found.length >= 2) return found;
  return ticks(from, to, 3).filter((tick) => tick > 0);
}

function tickText(value, name) {
  if (SHARES.test(name)) return `${number(100 * value, 3)} %`;
  const size = Math.abs(value);
  if (size >= 1e6) return `${number(value / 1e6, 3)}M`;
  if (size >= 1e4) return `${number(value / 1e3, 3)}k`;
  return size !== 0 && size < 1e-3 ? value.toExponential(0) : number(value, 4);
}
