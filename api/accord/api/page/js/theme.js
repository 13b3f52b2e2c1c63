// Light, dark or what the system says. A classic script, so that the first paint has the right colours.
(() => {
  const ORDER = ["system", "light", "dark"];
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("accord-theme");
    } catch {
      return null; // storage can be forbidden
    }
  };
  const keep = (choice) => {
    try {
      localStorage.setItem("accord-theme", choice);
    } catch {
      // the choice then lasts as long as the page
    }
  };
  let choice = ORDER.includes(stored()) ? stored() : "system";

  function apply() {
    if (choice === "system") root.removeAttribute("data-theme");
    else root.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${choice}`;
    window.dispatchEvent(new Event("accord-theme"));
  }

  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
      keep(choice);
      apply();
    });
  });
})();
