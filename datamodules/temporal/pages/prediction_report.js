// The prediction report of the temporal family.

predictionReport({
  kind: "Task",
  note: "Blind is the same model without the series: compare each metric with blind (the tick in the bar). Rules know the curve.",
  right: "Right are answers of the right class with every value within 5 % of the capacity and every time within one step; " +
    "they are more than the metric exact counts, for which every value is right to the last digit.",
  drawing: curves,
  legend: legend(["asked", "true", "predicted"]),
});
