"""Reports: one self-contained HTML file on a fitted table, mesh or road network."""

from rfgp.errors import requires_extra

with requires_extra("report"):
    from rfgp.effects.effects import Effect as Effect
    from rfgp.effects.effects import effects_of as effects_of
    from rfgp.effects.variables import input_frame as input_frame
    from rfgp.report.forecasts import forecast_report as forecast_report
    from rfgp.report.reports import field_report as field_report
    from rfgp.report.reports import table_report as table_report
    from rfgp.report.study import Study as Study
    from rfgp.report.study import study_field as study_field
    from rfgp.report.study import study_table as study_table
