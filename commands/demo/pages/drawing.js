// A square to draw a picture in, which is sent as PNG after every stroke.

const PAD = 224;

function drawingPad(field, send, unset) {
  const [ink, paper] = field.draw;
  const canvas = element("canvas", {width: PAD, height: PAD, class: "pad", role: "img", "aria-label": "draw a picture here"});
  const context = canvas.getContext("2d");
  let last = null;

  function clean() {
    context.fillStyle = paper;
    context.fillRect(0, 0, PAD, PAD);
  }
  function positionOf(event) {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * PAD / box.width, (event.clientY - box.top) * PAD / box.height];
  }
  function stroke(event) {
    const point = positionOf(event);
    context.strokeStyle = ink;
    context.lineWidth = PAD / 9;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...(last || point));
    context.lineTo(...point);
    context.stroke();
    last = point;
  }
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = null;
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) stroke(event); });
  canvas.addEventListener("pointerup", () => send(new Promise((drawn) =>
    canvas.toBlob((blob) => drawn(new File([blob], "drawing.png")), "image/png"))));
  clean();
  const node = element("div", {class: "way drawing"}, canvas, element("div", {class: "row"},
    button("Clear", () => { clean(); unset(); }, "plain")));
  return {name: "Draw one", node, open: clean, close() {}};
}
