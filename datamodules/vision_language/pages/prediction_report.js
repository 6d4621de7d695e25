// The prediction report of the vision-language family.

function pictures(record) {
  if (!record.pictures.length) return element("p", {class: "none"}, "(no image)");
  return element("div", {class: "pictures"}, ...record.pictures.map((source, index) =>
    element("img", {src: source, alt: `image ${index + 1} of ${record.pictures.length} of sample ${record.sample}`})));
}

predictionReport({
  kind: "Kind",
  note: "Blind is the same model with black images: compare each metric with blind (the tick in the bar).",
  right: "Right are answers that reach the first outcome of their card in full.",
  drawing: pictures,
  legend: null,
});
