"""From what was measured to what is read."""


def publish(place, plan, amount, tuned):
    return place / "index.html"
