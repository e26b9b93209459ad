// A page that was opened from the file system may not start a Worker: search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const worker = this;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        frame.onload = () => resolve(frame.contentWindow);
      });
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        worker.dispatchEvent(message);
        if (worker.onmessage) worker.onmessage(message);
      });
      frame.srcdoc = `<script>postMessage = (data) => parent.postMessage(data, "*");</script><script src="${url}"></script>`;
      document.documentElement.append(frame);
    }
    postMessage(data) {
      this.ready.then((scope) => {
        scope.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    terminate() {}
  };
}
