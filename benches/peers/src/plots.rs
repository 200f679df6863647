//! Pictures of the tables.

use crate::job::Result;
use plotters::prelude::*;

/// What a line is called, and its points.
pub type Line = (String, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (960, 460);

/// Rates by threads, both axes logarithmic. claimdb's lines are the thick ones.
pub fn draw(title: &str, lines: &[Line]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let rates = || lines.iter().flat_map(|(_, points)| points).map(|point| point.1.max(1.0));
        let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(1.0, f64::max));
        // Room to the right for the names of the lines.
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(78)
            .build_cartesian_2d((0.9..2000.0).log_scale(), (least.min(most) * 0.8..most * 1.5).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("threads")
            .y_desc("operations a second")
            .x_label_formatter(&f64::to_string)
            .y_label_formatter(&f64::to_string)
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        for (number, (name, points)) in lines.iter().enumerate() {
            let width = if name.starts_with("claimdb") { 4 } else { 2 };
            let style = Palette99::pick(number).to_rgba().stroke_width(width);
            let points = points.iter().map(|point| (point.0, point.1.max(1.0)));
            chart
                .draw_series(LineSeries::new(points, style).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
