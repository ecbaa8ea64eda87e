/** News from the server, as server-sent events. One tab listens for all: a browser has few connections to a server. */

import { state, update } from "./state.js";

const RETRY = 1_500; // milliseconds

export function listen(project) {
  const channel = new BroadcastChannel(`mma-feed-${project}`);
  const take = (news) => update(news);
  channel.onmessage = (event) => take(event.data);
  const lead = () => new Promise(() => connect((news) => { take(news); channel.postMessage(news); }));
  if (navigator.locks) navigator.locks.request(`mma-feed-${project}`, lead);
  else lead();
}

function connect(tell) {
  const source = new EventSource("/api/events");
  source.onopen = () => tell({ reachable: true });
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    if (news.project === state.project.id) tell({ ...news, project: state.project, reachable: true });
  };
  source.onerror = () => {
    tell({ reachable: false });
    source.close();
    setTimeout(() => connect(tell), RETRY);
  };
}
