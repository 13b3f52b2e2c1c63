// An address that is none.
import { h } from "../dom.js";

export const title = () => "No such view · accord";
export const paths = () => [];
export const render = () => [h("h1", {}, "No such view"), h("p", {}, "This address names nothing here. ", h("a", { href: "#/" }, "All pairs"), ".")];
