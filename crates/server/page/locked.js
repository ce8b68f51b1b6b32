// The model's page, for a browser that has to send the key with it: an address alone carries none.

import { ask, key, setKey } from "./api.js";

const $ = (id) => document.getElementById(id);

/** Puts the page instead of this one. Its style sheet and script are files of this server; nothing inline would run. */
async function unlock() {
  let response;
  try {
    response = await ask(`model${location.search}`);
  } catch (error) {
    // The refusal is this page; the first time, nobody has given a key.
    $("why").textContent = error.status === 401 ? "The server does not take this key." : error.message;
    $("why").hidden = error.status === 401 && !key();
    $("unlock").hidden = false;
    $("key").focus();
    return;
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  // A script that was parsed so never runs: those that are files are made anew.
  const scripts = [...page.querySelectorAll("script[src]")].map((parsed) => {
    parsed.remove();
    const script = document.createElement("script");
    script.src = parsed.getAttribute("src");
    return script;
  });
  document.replaceChild(document.adoptNode(page.documentElement), document.documentElement);
  document.body.append(...scripts);
  document.querySelector("h1")?.setAttribute("tabindex", "-1");
  document.querySelector("h1")?.focus();
}

$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey($("key").value.trim());
  unlock();
});
if (key()) unlock();
else {
  $("unlock").hidden = false;
  $("key").focus();
}
