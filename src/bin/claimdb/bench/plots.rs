//! The pictures of a report.

use super::report::Measured;
use crate::out::counted;
use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;

type Drawn = Result<String, Box<dyn Error>>;
/// What a line is called, and its points.
type Line = (String, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (960, 420);

/// Operations a second by threads: a line for each engine, durability and number of keys.
pub(super) fn throughput(measured: &[Measured]) -> Drawn {
    let axes = ["threads", "operations a second"];
    let by_keys = has_several_keys(measured);
    let name = |one: &Measured| named(one, by_keys.then(|| counted(one.row.keys, "key", "keys")));
    draw(
        "Throughput by threads",
        axes,
        &lines(measured, name, |one| (f64::from(one.row.threads), one.rate())),
    )
}

/// How long a claim and its completion take, in the best so many percent of the cases, with the most threads.
pub(super) fn latencies(measured: &[Measured]) -> Drawn {
    const CURVE: [f64; 9] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];
    let by_keys = has_several_keys(measured);
    let most = measured.iter().map(|one| one.row.threads).max();
    let of = measured.iter().filter(|one| Some(one.row.threads) == most && !one.fresh.is_empty());
    let lines: Vec<Line> = of
        .map(|one| {
            // One in so many takes longer; of what was measured so often, and no more seldom than that.
            let count = one.fresh.len() as f64;
            let curve = CURVE.into_iter().map(|percentile| (100.0 / (100.0 - percentile), percentile));
            let points = curve.filter(|(rarity, _)| *rarity < count).chain([(count, 100.0)]);
            let point =
                |(rarity, percentile)| (rarity, one.fresh.value_at_percentile(percentile) as f64 / 1000.0);
            let keys = by_keys.then(|| format!(", {}", counted(one.row.keys, "key", "keys")));
            (format!("{}{}", one.row, keys.unwrap_or_default()), points.map(point).collect())
        })
        .collect();
    draw("Claim and complete: one in so many takes longer", ["one in", "microseconds"], &lines)
}

/// What an operation costs by how many keys are stored.
pub(super) fn cost_by_size(measured: &[Measured]) -> Drawn {
    let name = |one: &Measured| named(one, Some(counted(one.row.threads, "thread", "threads")));
    let lines = lines(measured, name, |one| (one.row.keys as f64, 1e6 / one.rate().max(1e-9)));
    draw(
        "Cost by store size",
        ["keys stored before", "microseconds an operation, all threads together"],
        &lines,
    )
}

fn has_several_keys(measured: &[Measured]) -> bool {
    measured.windows(2).any(|pair| pair[0].row.keys != pair[1].row.keys)
}

/// What a line is called whose points share all but what its plot goes by.
fn named(one: &Measured, also: Option<String>) -> String {
    let also = also.map(|also| format!(", {also}")).unwrap_or_default();
    format!("{} {}{also}", one.row.storage.name(), one.row.durability_name())
}

/// A line for each group of rows of one `name`.
fn lines(
    measured: &[Measured],
    name: impl Fn(&Measured) -> String,
    point: impl Fn(&Measured) -> (f64, f64),
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for one in measured {
        let (name, at) = (name(one), point(one));
        match lines.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push(at),
            None => lines.push((name, vec![at])),
        }
    }
    for (_, points) in &mut lines {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// Both axes are logarithmic.
fn draw(title: &str, axes: [&str; 2], lines: &[Line]) -> Drawn {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let points = || lines.iter().flat_map(|(_, points)| points);
        let (mut across, up) = (span(points().map(|point| point.0)), span(points().map(|point| point.1)));
        // Room for the names of the lines.
        across.end *= (across.end / across.start).powf(0.4);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(78)
            .build_cartesian_2d(across.log_scale(), up.log_scale())?;
        chart
            .configure_mesh()
            .x_desc(axes[0])
            .y_desc(axes[1])
            .x_label_formatter(&f64::to_string)
            .y_label_formatter(&f64::to_string)
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        for (number, (name, points)) in lines.iter().enumerate() {
            let colour = Palette99::pick(number).to_rgba();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
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

/// From a little below the least value to a little above the greatest.
fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) =
        values.fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    if least > most { 1.0..10.0 } else { (least * 0.8).max(1e-3)..(most * 1.5).max(1e-2) }
}
