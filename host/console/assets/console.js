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

/**
 * Loads a page and returns an element of it. A document from XMLHttpRequest runs no script.
 *
 * @param form what is sent; without it, the page is read
 */
function load(url, selector, form) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(form ? "POST" : "GET", url);
    request.responseType = "document";
    request.timeout = 10000;
    request.onload = () => {
      // A form that is refused comes back with what is wrong.
      const isPage = request.status === 200 || (form && request.status === 422);
      const found = isPage && request.responseURL === url && request.response?.querySelector(selector);
      found ? resolve(found) : reject(new Error(String(request.status)));
    };
    request.onerror = request.ontimeout = () => reject(new Error("no answer"));
    request.send(form);
  });
}

/** Puts the content of an element of another page into this one. */
function show(fresh, region) {
  region.replaceChildren(...document.importNode(fresh, true).childNodes);
  offerCopies(region);
}

/** Shows what a form would do, a moment after it was changed. */
function previewAsTyped(form) {
  const region = document.getElementById(form.dataset.previews);
  let timer;
  let asked = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const fields = new URLSearchParams(new FormData(form));
      fields.set("op", "preview");
      asked += 1;
      const own = asked;
      const fresh = await load(form.action, `#${region.id}`, fields).catch(() => null);
      // What was typed since gets a separate answer.
      if (fresh && own === asked) show(fresh, region);
    }, 300);
  });
}

/** Lets a file fill a text. */
function offerUpload(input) {
  input.closest("[hidden]").hidden = false;
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    if (file.size > 1048576) {
      say("The file has more than 1 MiB");
    } else {
      document.getElementById(input.dataset.fills).value = await file.text();
      say(`${file.name} is read`);
    }
    input.value = "";
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

  function tell(state, words) {
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
      tell("waiting", "Waits while you use it");
      plan();
      return;
    }
    try {
      const fresh = await load(location.href.split("#")[0], "[data-live]");
      failures = 0;
      if (!paused && !isInUse(region)) {
        const putBack = place(region);
        show(fresh, region);
        putBack();
        tell("live", `Live, every ${seconds} s`);
      }
    } catch {
      failures += 1;
      tell("lost", "The gateway does not answer; what you see is old");
    }
    plan();
  }
  button.addEventListener("click", () => {
    paused = !paused;
    tell(paused ? "paused" : "live", paused ? "Paused" : `Live, every ${seconds} s`);
    if (paused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  tell("live", `Live, every ${seconds} s`);
  plan();
}

/** Keeps an element as its own page has it now, every ten seconds. */
function watch(region) {
  const url = new URL(region.dataset.watch, location.href).href;
  setInterval(async () => {
    if (document.hidden) return;
    const fresh = await load(url, `#${region.id}`).catch(() => null);
    // A screen reader reads what changes, so nothing is put in place of the same.
    if (fresh && fresh.textContent !== region.textContent) show(fresh, region);
  }, 10000);
}

offerCopies(document);
const region = document.querySelector("[data-live]");
if (region) keepLive(region);
document.querySelectorAll("form[data-previews]").forEach(previewAsTyped);
document.querySelectorAll("[data-watch]").forEach(watch);
document.querySelectorAll("input[data-fills]").forEach(offerUpload);
