// What a page that stays open does by itself. Without it everything can still be read and done: pages are whole, forms are forms.

// What is new: the same address, asked again; each part that is marked and has changed is put in place of the old one.
let failures = 0;

const textOf = (part) => part.innerHTML.replaceAll(/ name="once" value="[^"]*"/g, "");
const seen = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, textOf(part)]));

function every() {
  return Number(document.body.dataset.every || 0);
}

function busy(part) {
  const at = document.activeElement;
  const editing = at && part.contains(at) && at.matches("input, select, textarea");
  const chosen = [...part.querySelectorAll("input[type=checkbox]")].some((box) => box.checked !== box.defaultChecked);
  return editing || chosen || part.querySelector("details.deed[open]") !== null || picking(part);
}

function picking(part) {
  const selection = getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

function opened(part) {
  return new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
}

function replace(part, fresh) {
  const open = opened(part);
  const focused = part.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute("href") : null;
  const placed = document.importNode(fresh, true);
  part.replaceWith(placed);
  for (const id of open) placed.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  if (focused) [...placed.querySelectorAll("a, button, summary, [tabindex]")].find((one) => one.id === focused || one.getAttribute("href") === focused)?.focus();
}

async function look() {
  if (document.hidden || !every()) return;
  let answer;
  try {
    answer = await fetch(location.href, { headers: { "X-Eyas-Live": "1" }, signal: AbortSignal.timeout(15000), redirect: "error" });
    if ([401, 403, 404].includes(answer.status)) return location.reload();
    if (!answer.ok) throw new Error(String(answer.status));
  } catch {
    failures += 1;
    document.getElementById("lost").hidden = failures < 2;
    return;
  }
  failures = 0;
  document.getElementById("lost").hidden = true;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.title = fresh.title;
  document.body.dataset.every = fresh.body.dataset.every || "";
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other) continue;
    const text = textOf(other);
    if (text === seen.get(part.id) || busy(part)) continue;
    seen.set(part.id, text);
    replace(part, other);
  }
}

function later() {
  const pause = (every() || 15) * 1000 * Math.min(8, 2 ** failures);
  setTimeout(async () => { await look(); later(); }, pause);
}

document.addEventListener("visibilitychange", look);
later();

// A log that is followed: text is appended as text, and the end says so.
const MOST = 400000;

function follow(box) {
  const stream = new EventSource(box.dataset.log);
  const said = document.getElementById(box.dataset.said);
  const tell = (text) => { if (said) said.textContent = text; };
  let begun = false;
  stream.addEventListener("log", (event) => {
    const { text } = JSON.parse(event.data);
    const below = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (!begun) box.textContent = "";
    begun = true;
    box.append(text);
    if (box.textContent.length > MOST) box.textContent = box.textContent.slice(-MOST / 2);
    if (below) box.scrollTop = box.scrollHeight;
    tell("following");
  });
  stream.addEventListener("end", () => { stream.close(); tell("ended"); });
  stream.addEventListener("problem", (event) => { stream.close(); tell(JSON.parse(event.data).detail); });
  stream.onerror = () => tell(stream.readyState === EventSource.CLOSED ? "not followed any more: reload the page" : "connection lost; trying again");
}

for (const box of document.querySelectorAll("[data-log]")) follow(box);

// Small comforts.
document.documentElement.classList.add("scripted");
document.addEventListener("change", (event) => { if (event.target.matches("[data-submits]")) event.target.form.requestSubmit(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const deed = event.target.closest?.("details.deed[open]");
  if (deed) { deed.open = false; deed.querySelector("summary").focus(); }
});
document.addEventListener("submit", (event) => {
  for (const button of event.target.querySelectorAll("button")) button.disabled = true;
});
