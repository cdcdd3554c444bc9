// Everything works without this script. It adds: the viewer's time zone, copy buttons, menus that close, live progress.
"use strict";
(() => {
  const root = document.documentElement;

  // The server renders times in the zone of this cookie.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && root.dataset.zone !== zone && !document.cookie.includes("tz=" + encodeURIComponent(zone))) {
    document.cookie = "tz=" + encodeURIComponent(zone) + "; path=/; max-age=31536000; samesite=lax";
  }

  const live = document.getElementById("live");
  let saidAt = 0;
  const say = (text, always) => {
    const now = Date.now();
    if (!live || (!always && now - saidAt < 10000)) return;
    saidAt = now;
    live.textContent = text;
  };

  // Browsers offer the clipboard at https and on this machine only. What cannot be copied stays selected.
  const copy = async (source) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(source.textContent).then(() => true);
    getSelection().selectAllChildren(source);
    return document.execCommand("copy");
  };

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    const label = button.querySelector("span");
    const word = label.textContent;
    button.addEventListener("click", async () => {
      if (!await copy(document.getElementById(button.dataset.copy))) return;
      label.textContent = button.dataset.done;
      say(button.dataset.done, true);
      setTimeout(() => { label.textContent = word; }, 2000);
    });
  }

  const menus = document.querySelectorAll("details.menu");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus) {
      if (menu.open) { menu.open = false; menu.querySelector("summary").focus(); }
    }
  });
  document.addEventListener("click", (event) => {
    for (const menu of menus) if (menu.open && !menu.contains(event.target)) menu.open = false;
  });

  for (const select of document.querySelectorAll("select[data-submit]")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  for (const all of document.querySelectorAll("[data-check-all]")) {
    all.closest("[hidden]")?.removeAttribute("hidden");
    all.addEventListener("change", () => {
      for (const box of all.form.querySelectorAll('input[name="url"]')) box.checked = all.checked;
    });
  }
  document.querySelector("[data-focus]")?.focus();

  // Live progress: the stream names parts of the page and their new text. The page reloads once at the end.
  const progress = document.querySelector("[data-stream]");
  if (progress) {
    const lost = progress.querySelector("[data-lost]");
    let stream;
    const reload = () => { stream.close(); location.reload(); };
    const show = (state) => {
      lost.hidden = true;
      for (const [name, text] of Object.entries(state.texts)) {
        const part = progress.querySelector('[data-part="' + CSS.escape(name) + '"]');
        if (part && part.textContent !== text) part.textContent = text;
      }
      for (const [name, [look, icon]] of Object.entries(state.marks)) {
        const mark = progress.querySelector('[data-mark="' + CSS.escape(name) + '"]');
        // Another engine has begun: the page shows it with its row.
        if (!mark) return reload();
        const use = mark.querySelector("use");
        mark.className = look;
        use.setAttribute("href", use.getAttribute("href").replace(/#.*/, "#" + icon));
      }
      const bar = progress.querySelector("[role=progressbar]");
      bar.setAttribute("aria-valuenow", state.percent);
      bar.setAttribute("aria-valuetext", state.summary);
      bar.querySelector(".a").setAttribute("width", state.percent);
      say(state.summary, state.ended);
      if (state.ended) reload();
    };
    // After an answer that is no stream, the browser does not try again. As soon as the page answers, it is loaded anew:
    // it may also ask to sign in.
    const recover = () => setTimeout(async () => {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
      if (answer && answer.status < 500) location.reload(); else recover();
    }, 3000);
    const watch = () => {
      stream = new EventSource(progress.dataset.stream);
      stream.addEventListener("message", (event) => show(JSON.parse(event.data)));
      stream.addEventListener("error", () => {
        lost.hidden = false;
        if (stream.readyState === EventSource.CLOSED) recover();
      });
    };
    // A browser opens few connections to one host: a tab that nobody sees holds none.
    document.addEventListener("visibilitychange", () => { if (document.hidden) stream?.close(); else watch(); });
    if (!document.hidden) watch();
  }
})();
