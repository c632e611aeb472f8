// Browsers do not allow a page opened from disk to start a web worker. This class runs the worker script of the search
// in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.onmessage?.({ data });
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: new URL(url, location), onload: resolve, onerror: reject });
        inside.document.body.append(script);
      });
      this.ready.catch((problem) => this.onerror?.(problem));
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.onmessage({ data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
