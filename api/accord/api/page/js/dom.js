// Elements from values, and changing what is shown into what should be shown without touching what stays the same.
// Every value becomes text: there is no way to pass markup.

export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  node._on = {};
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") node._key = value;
    else if (name.startsWith("on")) listen(node, name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : plain(value));
  }
  node.append(...children.flat(Infinity).filter(shown).map(asNode));
  return node;
}

const shown = (child) => child !== null && child !== undefined && child !== false;
const asNode = (child) => (child instanceof Node ? child : document.createTextNode(plain(child)));

// Control characters, and marks that turn the direction of text so that a line reads as something else than it says.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const plain = (value) => String(value).replace(UNSAFE, "\ufffd");

function listen(node, type, handler) {
  // Through `_on`, so that an element that stays gets the newest handler.
  node._on[type] = handler;
  node.addEventListener(type, (event) => node._on[type]?.(event));
}

// A part that keeps its own state (a chart, a form): made once, then given new props.
// `create(element, props)` returns {update(props), destroy()}.
export function island(key, create, props, tag = "div", attributes = {}) {
  const node = h(tag, { ...attributes, key });
  node._island = { create, props };
  return node;
}

export function show(target, ...children) {
  const focused = document.activeElement;
  const typing = target.contains(focused) && focused.matches("input, select");
  const place = typing ? focused.getBoundingClientRect().top : 0;
  morph(target, children.flat(Infinity).filter(shown).map(asNode));
  // A move in the document takes the focus away, where the browser cannot move without removing.
  if (focused && focused !== document.activeElement && focused !== document.body && focused.isConnected) {
    focused.focus({ preventScroll: true });
  }
  // Whoever types keeps the field where it is on the screen, whatever grew above it.
  const moved = typing && focused.isConnected ? focused.getBoundingClientRect().top - place : 0;
  if (moved) scrollBy({ top: moved, behavior: "instant" });
}

function morph(target, fresh) {
  const keyed = new Map();
  for (const child of target.childNodes) if (child._key !== undefined) keyed.set(child._key, child);
  let at = target.firstChild;
  for (const next of fresh) {
    const found = next._key === undefined ? at : keyed.get(next._key);
    if (found && same(found, next)) {
      if (found === at) at = at.nextSibling;
      else move(target, found, at);
      change(found, next);
    } else {
      target.insertBefore(next, at);
      mount(next);
    }
  }
  while (at) {
    const following = at.nextSibling;
    unmount(at);
    at.remove();
    at = following;
  }
}

const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && a._key === b._key;

function move(target, node, before) {
  if (target.moveBefore) target.moveBefore(node, before);
  else target.insertBefore(node, before);
}

function change(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  old._on ??= {};
  for (const [type, handler] of Object.entries(next._on ?? {})) {
    if (type in old._on) old._on[type] = handler;
    else listen(old, type, handler);
  }
  for (const { name } of [...old.attributes]) {
    // Whether details are open is the reader's choice.
    if (!next.hasAttribute(name) && name !== "open" && !old._island) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  if (old._island) {
    old._island.handle?.update(next._island.props);
    return;
  }
  morph(old, [...next.childNodes]);
}

function mount(node) {
  if (node._island && !node._island.handle) node._island.handle = node._island.create(node, node._island.props);
  else for (const child of node.childNodes) mount(child);
}

function unmount(node) {
  if (node._island?.handle) node._island.handle.destroy?.();
  else for (const child of node.childNodes) unmount(child);
}
