from support.connector_fixtures import arrow_peak, given_up_soon, harnessed, rude  # noqa: F401
