"""The Stripe SDKs, Python's and Node's, behind one face: what a shop's code sees of each."""

import json
from dataclasses import dataclass

import stripe

import programs

REPLAYED = "idempotent-replayed"
SECRET = "sk_test_semel"


@dataclass
class Made:
    """What a call returned."""

    id: str
    replayed: bool


class Refused(Exception):
    """What a call raised or threw."""

    def __init__(self, status, body, param, headers):
        super().__init__("%s %s" % (status, body))
        self.status = status    # None: no answer
        self.body = body        # the answer's JSON, as far as the SDK shows it
        self.param = param
        self.replayed = (headers or {}).get(REPLAYED) == "true"

    @property
    def code(self):
        return self.body.get("code")


class PythonSdk:
    """The first retry comes after half a second, as for every shop that sets nothing."""

    def __init__(self, url, retries=5, secret=SECRET):
        self._client = stripe.StripeClient(secret, base_addresses={"api": url}, max_network_retries=retries)

    def create(self, service, params, key=None):
        options = {"idempotency_key": key} if key else {}
        try:
            made = getattr(self._client.v1, service).create(params=params, options=options)
        except stripe.StripeError as error:
            body = json.loads(error.http_body) if error.http_body else None
            # As Node's shows it: what stands in `error`.
            raise Refused(error.http_status, body and body["error"], getattr(error, "param", None),
                          error.headers and lower(error.headers)) from error
        return Made(made.id, lower(made.last_response.headers).get(REPLAYED) == "true")

    def list_charges(self):
        return [charge.id for charge in self._client.v1.charges.list().data]


class NodeSdk:
    SERVICES = {"charges": "charges", "payment_intents": "paymentIntents", "refunds": "refunds"}

    def __init__(self, url, retries=5, secret=SECRET):
        self._call = {"url": url, "retries": retries, "secret": secret}

    def create(self, service, params, key=None):
        answer = self._ask(service=self.SERVICES[service], call="create", params=params, key=key)
        # A shop that reads `charge.id` and finds none has been told of no charge and of no error.
        return Made(answer["made"]["id"], answer["headers"].get(REPLAYED) == "true")

    def list_charges(self):
        return [charge["id"] for charge in self._ask(service="charges", call="list", params={})["made"]["data"]]

    def _ask(self, **call):
        try:
            with programs.node("stripe.cjs") as client:
                return client.ask(**self._call, **call)
        except programs.Failed as failed:
            error = failed.error
            raise Refused(error.get("status"), error.get("raw"), error.get("param"), error.get("headers")) from failed


def lower(headers):
    return {name.lower(): value for name, value in headers.items()}


SDKS = {"Python": PythonSdk, "Node": NodeSdk}
