// The prediction report on questions about series.

predictionReport({
  kind: "Kind",
  note: "Blind is the same model without the measurements, with name, length and range of each series: compare each metric with blind (the tick in the bar). Chance is a guess among the options.",
  right: "Right is the reference option, a number within the tolerance in the same unit, or the same text but for case and spaces.",
  rules: "chance",
  drawing: seriesOf,
  legend: null,
});
