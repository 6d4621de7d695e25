// The prediction report of the temporal family.

predictionReport({
  kind: "Task",
  note: "Blind is the same model without the series: what a figure is worth is its distance from blind (the tick in the bar). Rules know the curve.",
  drawing: curves,
  legend: legend(["asked", "true", "predicted"]),
});
