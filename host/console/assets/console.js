// Refreshes what is live on a page, and offers to copy commands. Every page works without it.

const said = document.getElementById("said");

function say(text) {
  said.textContent = text;
}

/** Adds a button to each text that is meant for a shell. */
function offerCopies(root) {
  for (const text of root.querySelectorAll("pre[data-copy]:not([data-offered])")) {
    text.dataset.offered = "";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.querySelector("code").textContent);
        button.textContent = "Copied";
        say("Copied");
      } catch {
        button.textContent = "Select and copy";
        getSelection().selectAllChildren(text.querySelector("code"));
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    text.append(button);
  }
}

/** Loads this page again and returns the same element of it. A document from XMLHttpRequest runs no script. */
function load(selector) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.timeout = 10000;
    request.onload = () => {
      const found = request.status === 200 && request.responseURL === location.href.split("#")[0]
        && request.response?.querySelector(selector);
      found ? resolve(found) : reject(new Error(String(request.status)));
    };
    request.onerror = request.ontimeout = () => reject(new Error("no answer"));
    request.send();
  });
}

/** Whether somebody is at work in it: typing, confirming, reading details or selecting text. */
function isInUse(region) {
  const selection = getSelection();
  return region.querySelector("details[open]") !== null
    || (region.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"))
    || (!selection.isCollapsed && region.contains(selection.anchorNode));
}

/** Where the focus is, so that it can be put back. */
function place(region) {
  const focusable = () => [...region.querySelectorAll("a, button, summary")];
  const focused = document.activeElement;
  if (!region.contains(focused)) return () => {};
  const { href, id } = focused;
  const index = focusable().indexOf(focused);
  return () => {
    const all = focusable();
    const same = all.find((one) => (id && one.id === id) || (href && one.href === href)) ?? all[index];
    same?.focus({ preventScroll: true });
  };
}

function keepLive(region) {
  const seconds = Number(region.dataset.live);
  const status = document.createElement("p");
  status.className = "live";
  const dot = document.createElement("span");
  dot.className = "dot";
  const text = document.createElement("span");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet small";
  status.append(dot, text, button);
  region.before(status);
  let paused = false;
  let failures = 0;
  let timer;

  function show(state, words) {
    status.dataset.state = state;
    text.textContent = words;
    button.textContent = paused ? "Resume" : "Pause";
  }
  function plan() {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    timer = setTimeout(refresh, 1000 * seconds * Math.min(2 ** failures, 16));
  }
  async function refresh() {
    if (isInUse(region)) {
      show("waiting", "Waits while you use it");
      plan();
      return;
    }
    try {
      const fresh = await load("[data-live]");
      failures = 0;
      if (!paused && !isInUse(region)) {
        const putBack = place(region);
        region.replaceChildren(...document.importNode(fresh, true).childNodes);
        offerCopies(region);
        putBack();
        show("live", `Live, every ${seconds} s`);
      }
    } catch {
      failures += 1;
      show("lost", "The gateway does not answer; what you see is old");
    }
    plan();
  }
  button.addEventListener("click", () => {
    paused = !paused;
    show(paused ? "paused" : "live", paused ? "Paused" : `Live, every ${seconds} s`);
    if (paused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  show("live", `Live, every ${seconds} s`);
  plan();
}

offerCopies(document);
const region = document.querySelector("[data-live]");
if (region) keepLive(region);
