// Who is signed in. The token lives in sessionStorage alone: it is gone with the tab.
const KEY = "accord-token";
const watchers = new Set();
const state = { needed: false, refused: false, name: null, role: null };

let token = read();

function read() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const session = {
  get token() {
    return token;
  },
  get state() {
    return state;
  },
  watch(watcher) {
    watchers.add(watcher);
  },
  signIn(value) {
    token = value.trim();
    store(token);
    Object.assign(state, { needed: false, refused: false, name: null, role: null });
    tell();
  },
  signOut() {
    token = null;
    store(null);
    Object.assign(state, { needed: true, refused: false, name: null, role: null });
    tell();
  },
  // The server answered 401.
  unauthenticated() {
    if (state.needed && state.refused === Boolean(token)) return;
    Object.assign(state, { needed: true, refused: Boolean(token), name: null, role: null });
    tell();
  },
  known(name, role) {
    if (state.name === name && state.role === role) return;
    Object.assign(state, { needed: false, refused: false, name, role });
    tell();
  },
};

function store(value) {
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // forbidden storage: the token then lasts until the page is loaded again
  }
}

function tell() {
  for (const watcher of watchers) watcher();
}

// Headers can carry Latin-1 only; a token of other characters cannot be right.
export const sendable = (value) => /^[\x21-\x7e]+$/.test(value.trim());

// Why this session may not change anything, or null when it may.
export function forbidden() {
  if (state.role === null || state.role === "operator") return null;
  return `You are signed in as ${state.role}: only an operator may change what engines are served.`;
}
