//! Line charts in SVG.

use super::super::Failure;
use plotters::prelude::*;

/// A line of a chart.
pub(super) struct ChartLine {
    pub(super) name: String,
    /// The points, by x.
    pub(super) points: Vec<(f64, f64)>,
}

/// The labels of the axes.
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

const SIZE: (u32, u32) = (900, 520);

/// Draws the lines from zero on, in one picture with a legend.
pub(super) fn lines(axes: &Axes<'_>, lines: &[ChartLine]) -> Result<String, Failure> {
    let mut svg = String::new();
    draw(&mut svg, axes, lines)
        .map_err(|e| Failure::Failed(format!("{} cannot be drawn: {e}", axes.title)))?;
    Ok(svg)
}

/// Draws the lines with powers of two on the axis below, and powers of ten on the other; points
/// that are not above zero are omitted.
pub(super) fn log_lines(axes: &Axes<'_>, lines: &[ChartLine]) -> Result<String, Failure> {
    let on_log = |line: &ChartLine| {
        let above = line.points.iter().filter(|p| p.0 > 0.0 && p.1 > 0.0);
        let points = above.map(|p| (p.0.log2(), p.1.log10())).collect();
        ChartLine { name: line.name.clone(), points }
    };
    let lines: Vec<ChartLine> = lines.iter().map(on_log).collect();
    let mut svg = String::new();
    draw_between(
        &mut svg,
        axes,
        &lines,
        bounds(&lines),
        (&|v| size(v.exp2()), &|v| size(10_f64.powf(*v))),
    )
    .map_err(|e| Failure::Failed(format!("{} cannot be drawn: {e}", axes.title)))?;
    Ok(svg)
}

/// A number in few characters.
fn size(v: f64) -> String {
    match v {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 10_000.0 => format!("{:.0}k", v / 1e3),
        v if v >= 10.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

type ChartBounds = (core::ops::Range<f64>, core::ops::Range<f64>);
type AxisLabels<'a> = (&'a dyn Fn(&f64) -> String, &'a dyn Fn(&f64) -> String);

/// The least and the most of both coordinates, with some air.
fn bounds(lines: &[ChartLine]) -> ChartBounds {
    let of = |pick: fn(&(f64, f64)) -> f64| {
        let all = || lines.iter().flat_map(|line| &line.points).map(pick);
        let (least, most) =
            (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        if least > most { 0.0..1.0 } else { least - 0.1..most + 0.1 }
    };
    (of(|p| p.0), of(|p| p.1))
}

fn draw(
    svg: &mut String,
    axes: &Axes<'_>,
    lines: &[ChartLine],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let right = all().map(|p| p.0).fold(1.0, f64::max);
    let top = all().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let label = |v: &f64| if top >= 10.0 { format!("{v:.0}") } else { format!("{v:.2}") };
    draw_between(svg, axes, lines, (0.0..right, 0.0..top), (&|v| format!("{v:.0}"), &label))
}

fn draw_between(
    svg: &mut String,
    axes: &Axes<'_>,
    lines: &[ChartLine],
    (across, up): ChartBounds,
    (label_x, label_y): AxisLabels<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(90)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .y_label_formatter(&label_y)
        .x_label_formatter(&label_x)
        .light_line_style(WHITE)
        .draw()?;
    for (n, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(n).to_rgba();
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(line.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let dots = line.points.iter().map(|p| Circle::new(*p, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}
