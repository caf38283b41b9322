//! Translates metrics to OTLP, by OpenTelemetry's rules for Prometheus metrics (Prometheus and OpenMetrics
//! Compatibility): counters are cumulative sums, and names are not changed.
//!
//! Reads the OpenMetrics text of the registry, because only text and protobuf encoders can read one: the
//! encoder for protobuf needs a compiler of `.proto` files, with second versions of its dependencies.
//!
//! Invariant: text that this crate's registry does not write is an error.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::Attributes;
use opentelemetry_proto::tonic::common::v1::KeyValue as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

/// Text that cannot be translated.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A line has an unknown form, or is not in its place.
    #[error("line {0} of the metrics is not understood")]
    Line(usize),
    /// The text ends early.
    #[error("the text of the metrics has no end")]
    NoEnd,
    /// The registry could not be written.
    #[error("cannot encode metrics")]
    Text,
}

/// The times of all points, as nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When counting began.
    start: u64,
    /// When the metrics were read.
    now: u64,
}

impl Times {
    /// The clock may have been set back since `start`.
    pub(super) fn new(start: SystemTime, now: SystemTime) -> Self {
        let nanoseconds = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            u64::try_from(since).unwrap_or(u64::MAX)
        };
        let start = nanoseconds(start);
        Self {
            start,
            now: nanoseconds(now).max(start),
        }
    }
}

struct Sample<'a> {
    name: &'a str,
    attributes: Vec<Attribute>,
    /// The label `le` of a histogram's bucket.
    bound: Option<f64>,
    value: &'a str,
}

/// Translates the text of a registry.
pub(super) fn translate(text: &str, times: Times) -> Result<Vec<Metric>, Error> {
    let mut metrics = Vec::new();
    // Text that was cut off anywhere would otherwise be translated in part.
    let lines = text.strip_suffix("# EOF\n").ok_or(Error::NoEnd)?.lines();
    for (at, line) in lines.enumerate() {
        add_line(&mut metrics, line, times).ok_or(Error::Line(at + 1))?;
    }
    Ok(metrics)
}

/// Adds what a line says, or returns `None` if it is not understood.
fn add_line(metrics: &mut Vec<Metric>, line: &str, times: Times) -> Option<()> {
    if let Some(help) = line.strip_prefix("# HELP ") {
        let (name, help) = help.split_once(' ')?;
        metrics.push(Metric {
            name: name.to_owned(),
            description: help.to_owned(),
            ..Metric::default()
        });
        return Some(());
    }
    let metric = metrics.last_mut()?;
    if let Some(kind) = line.strip_prefix("# TYPE ") {
        set_kind(metric, of(&metric.name, kind)?)
    } else if let Some(unit) = line.strip_prefix("# UNIT ") {
        metric.unit = to_unit(of(metric.name.trim_end_matches("_total"), unit)?).to_owned();
        Some(())
    } else {
        add_sample(metric, Sample::read(line)?, times)
    }
}

/// What a line says about the metric of this name.
fn of<'a>(name: &str, line: &'a str) -> Option<&'a str> {
    line.strip_prefix(name)?.strip_prefix(' ')
}

fn set_kind(metric: &mut Metric, kind: &str) -> Option<()> {
    let cumulative = AggregationTemporality::Cumulative.into();
    metric.data = Some(match kind {
        "counter" => {
            // The samples have it, and so have queries.
            metric.name.push_str("_total");
            Data::Sum(Sum {
                data_points: Vec::new(),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            })
        }
        "gauge" => Data::Gauge(Gauge::default()),
        "histogram" => Data::Histogram(Histogram {
            data_points: Vec::new(),
            aggregation_temporality: cumulative,
        }),
        _ => return None,
    });
    Some(())
}

/// The unit as OpenTelemetry writes it (UCUM).
fn to_unit(unit: &str) -> &str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        "ratios" => "1",
        other => other,
    }
}

fn add_sample(metric: &mut Metric, sample: Sample<'_>, times: Times) -> Option<()> {
    let suffix = sample.name.strip_prefix(&*metric.name)?;
    let data = metric.data.as_mut()?;
    if let Data::Histogram(histogram) = data {
        return add_to_histogram(&mut histogram.data_points, suffix, sample, times);
    }
    if !suffix.is_empty() || sample.bound.is_some() {
        return None;
    }
    let point = NumberDataPoint {
        time_unix_nano: times.now,
        value: Some(number(sample.value)?),
        attributes: sample.attributes,
        ..NumberDataPoint::default()
    };
    match data {
        Data::Sum(sum) => sum.data_points.push(NumberDataPoint {
            start_time_unix_nano: times.start,
            ..point
        }),
        Data::Gauge(gauge) => gauge.data_points.push(point),
        Data::Histogram(_) | Data::ExponentialHistogram(_) | Data::Summary(_) => return None,
    }
    Some(())
}

/// Adds a line of a histogram, whose lines are in the order `_sum`, `_count`, and `_bucket` by growing bound.
fn add_to_histogram(
    points: &mut Vec<HistogramDataPoint>,
    suffix: &str,
    sample: Sample<'_>,
    times: Times,
) -> Option<()> {
    if suffix == "_sum" {
        points.push(HistogramDataPoint {
            attributes: sample.attributes,
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            sum: Some(sample.value.parse().ok()?),
            ..HistogramDataPoint::default()
        });
        return Some(());
    }
    let point = points
        .last_mut()
        .filter(|point| point.attributes == sample.attributes)?;
    let count: u64 = sample.value.parse().ok()?;
    match (suffix, sample.bound) {
        ("_count", None) => point.count = count,
        ("_bucket", Some(bound)) => {
            // A bucket of OpenMetrics includes those below it, and one of OTLP does not.
            let below: u64 = point.bucket_counts.iter().sum();
            point.bucket_counts.push(count.checked_sub(below)?);
            // OTLP leaves out the bound of the last bucket.
            if bound < f64::INFINITY {
                point.explicit_bounds.push(bound);
            }
        }
        _ => return None,
    }
    Some(())
}

fn number(text: &str) -> Option<Value> {
    if let Ok(integer) = text.parse() {
        return Some(Value::AsInt(integer));
    }
    text.parse().ok().map(Value::AsDouble)
}

impl<'a> Sample<'a> {
    /// Reads `name{label="value",…} number`, where labels may be absent.
    fn read(line: &'a str) -> Option<Self> {
        let (name, mut rest) = line.split_at_checked(line.find(['{', ' '])?)?;
        let (mut labels, mut bound) = (Vec::new(), None);
        if let Some(mut text) = rest.strip_prefix('{') {
            while !text.starts_with('}') {
                let (name, quoted) = text.split_once("=\"")?;
                let (value, after) = read_quoted(quoted)?;
                if name == "le" {
                    bound = Some(value.parse().ok()?);
                } else {
                    labels.push(KeyValue::new(name.to_owned(), value));
                }
                text = after.strip_prefix(',').unwrap_or(after);
            }
            rest = text.strip_prefix('}')?;
        }
        Some(Self {
            name,
            attributes: Attributes::from(labels).0,
            bound,
            value: rest.strip_prefix(' ')?,
        })
    }
}

/// Reads a value up to its closing quote, and returns what follows it.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    loop {
        value.push(match characters.next()? {
            '"' => return Some((value, characters.as_str())),
            '\\' => match characters.next()? {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            },
            other => other,
        });
    }
}

#[cfg(test)]
mod tests;
