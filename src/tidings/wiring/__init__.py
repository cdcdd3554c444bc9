"""The composition root: builds every service from Settings; nothing else does.

`opening` opens what must be closed again. `installation` builds the services of core and announce; `alerts` their
destinations; `ticker` what is due. `collect` and `crawl` build the services of collect: `tidings announce` and
`tidings run` never import them.
"""
