// One payment by stripe-node, with the key and the retries that it makes by itself.
const Stripe = require("stripe");

const { hostname, port } = new URL(process.env.SERVICE);
const stripe = new Stripe("sk_test_claimdb", {
  host: hostname,
  port,
  protocol: "http",
  maxNetworkRetries: 10,
  telemetry: false,
});
stripe.paymentIntents.create({ amount: 1999, currency: "eur" }).then((intent) => console.log(intent.id));
