"""All figures of the report, in the order of the page: each module's build(report) gives those that the data allow."""

from . import errors, isas, overview, roofline, scaling, speed

MODULES = (overview, speed, scaling, roofline, isas, errors)


def build(report):
    return [figure for module in MODULES for figure in module.build(report)]
