// The visitor's camera: a preview, and a button that takes the picture.

const CAMERA_ERRORS = {
  NotAllowedError: "The browser does not allow this page to use the camera. Allow it beside the address, and try again.",
  NotFoundError: "No camera was found. Drop or choose a picture instead.",
  NotReadableError: "Another program uses the camera. Close it, and try again.",
  InsecureContext: "Browsers open the camera only for a page of this machine or over HTTPS. Drop or choose a picture instead.",
};

function camera(send) {
  let stream = null, asked = 0;
  const video = element("video", {class: "preview", autoplay: "", muted: "", playsinline: "", "aria-label": "what the camera sees"});
  const state = element("p", {class: "state", role: "status"});
  const take = button("Take the picture", shoot);
  const node = element("div", {class: "way camera"}, video, element("div", {class: "row"}, take), state);

  function show(text, kind = "") {
    state.textContent = text;
    state.className = "state " + kind;
    video.hidden = take.hidden = stream === null;
  }
  function stop() {
    asked++;
    if (stream) for (const track of stream.getTracks()) track.stop();
    stream = video.srcObject = null;
  }
  async function open() {
    const mine = ++asked;
    show("waiting for the camera …", "busy");
    try {
      if (!navigator.mediaDevices) throw {name: "InsecureContext"};
      const found = await navigator.mediaDevices.getUserMedia({video: {facingMode: "environment"}, audio: false});
      if (mine !== asked) return found.getTracks().forEach((track) => track.stop()); // it has been closed meanwhile
      stream = video.srcObject = found;
      show("");
      take.focus();
    } catch (error) {
      if (mine === asked) show(CAMERA_ERRORS[error.name] || "The camera cannot be used: " + error.message, "error");
    }
  }
  function shoot() {
    if (!video.videoWidth) return;
    const canvas = element("canvas", {width: video.videoWidth, height: video.videoHeight});
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => send(new File([blob], "camera.png")), "image/png");
  }
  addEventListener("pagehide", stop);
  return {name: "Use the camera", node, open, close: stop};
}
