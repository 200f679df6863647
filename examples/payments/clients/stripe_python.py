"""One payment by stripe-python, with the key and the retries that it makes by itself."""

import os

import stripe

stripe.api_base = os.environ["SERVICE"]
stripe.api_key = "sk_test_claimdb"
stripe.enable_telemetry = False
stripe.max_network_retries = 10
print(stripe.PaymentIntent.create(amount=1999, currency="eur").id)
