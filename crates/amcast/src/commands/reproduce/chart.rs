//! Line charts in SVG.

use super::super::Failure;
use plotters::prelude::*;

/// A line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    /// The points, by x.
    pub(super) points: Vec<(f64, f64)>,
}

/// What the axes say.
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

const SIZE: (u32, u32) = (900, 520);

/// Draws the lines from zero on, in one picture with a legend.
pub(super) fn lines(axes: &Axes<'_>, lines: &[Line]) -> Result<String, Failure> {
    let mut svg = String::new();
    draw(&mut svg, axes, lines)
        .map_err(|e| Failure::Failed(format!("{} cannot be drawn: {e}", axes.title)))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    axes: &Axes<'_>,
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let right = all().map(|p| p.0).fold(1.0, f64::max);
    let top = all().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(90)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    let label = |v: &f64| if top >= 10.0 { format!("{v:.0}") } else { format!("{v:.2}") };
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .y_label_formatter(&label)
        .x_label_formatter(&|v| format!("{v:.0}"))
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
