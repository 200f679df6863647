// One message by Svix's client for Node, with the key and the retries that it makes by itself.
const { Svix } = require("svix");

const svix = new Svix("testsk_claimdb", { serverUrl: process.env.SERVICE, retryScheduleInMs: Array(40).fill(500) });
svix.message.create("shop", { eventType: "paid", payload: { amount: 1999 } }).then((message) => console.log(message.id));
