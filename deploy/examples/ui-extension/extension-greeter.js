// A tab of an Application in Argo CD's UI. It shows what the extension `greeter` answers, by fetch,
// by an EventSource and by a WebSocket.
((window) => {
  const base = "/api/v1/extensions/greeter";

  // What a call is about. An EventSource and a WebSocket send this in the query, because a page
  // cannot set their header fields.
  const names = ({ metadata, spec }) => ({
    "argocd-application-name": `${metadata.namespace}:${metadata.name}`,
    "argocd-project-name": spec.project,
  });

  const call = (application, add) => {
    const query = new URLSearchParams(names(application));
    fetch(`${base}/hello`, { headers: names(application) })
      .then(async (answer) => add(`fetch ${answer.status}: ${await answer.text()}`))
      .catch((error) => add(`fetch failed: ${error}`));

    const events = new EventSource(`${base}/events?${query}`);
    events.onmessage = ({ data }) => add(`event: ${data}`);
    // Otherwise the browser connects again by itself.
    events.onerror = () => events.readyState === EventSource.CLOSED && add("events closed");

    const origin = window.location.origin.replace(/^http/, "ws");
    const socket = new WebSocket(`${origin}${base}/socket?${query}`);
    socket.onmessage = ({ data }) => add(`socket: ${data}`);
    socket.onclose = () => add("socket closed");
    return () => {
      events.close();
      socket.close();
    };
  };

  const Greeter = ({ application }) => {
    const [lines, setLines] = React.useState([]);
    const add = (line) => setLines((before) => [...before, line]);
    React.useEffect(() => call(application, add), [application.metadata.uid]);
    return React.createElement("pre", {}, lines.join("\n"));
  };

  window.extensionsAPI.registerResourceExtension(Greeter, "argoproj.io", "Application", "Greeter", {
    icon: "fa-comment",
  });
})(window);
