// Lets a Node client that cannot be given a token have one: `node --import token.mjs CLIENT`, with TOKEN set.
import { subscribe } from "node:diagnostics_channel";

const authorization = `Bearer ${process.env.TOKEN}`;
subscribe("undici:request:create", ({ request }) => request.addHeader("authorization", authorization));
subscribe("http.client.request.created", ({ request }) => request.setHeader("authorization", authorization));
