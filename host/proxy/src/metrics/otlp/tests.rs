use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::Attributes;
use opentelemetry_proto::tonic::common::v1::KeyValue as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge as RegisteredGauge;
use prometheus_client::metrics::histogram::Histogram as RegisteredHistogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Error, Times, translate};
use crate::metrics::{ConfigPart, Metrics};

const START: u64 = 1_000_000_000;
const NOW: u64 = 3_000_000_000;

fn at(nanoseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

fn translated(registry: &Registry) -> Vec<Metric> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    translate(&text, Times::new(at(START), at(NOW))).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn attributes(pairs: &[(&'static str, &'static str)]) -> Vec<Attribute> {
    let pairs = pairs.iter().map(|(key, value)| KeyValue::new(*key, *value));
    Attributes::from(pairs.collect::<Vec<_>>()).0
}

#[test]
fn a_counter_is_a_cumulative_sum_since_the_start() {
    let mut registry = Registry::default();
    let counter = Family::<[(&'static str, &'static str); 2], Counter>::default();
    registry.register("denials", "Denials by \"reason\"", counter.clone());
    let odd = [("front", "a\\b \"c\",d=\"}\ne"), ("reason", "")];
    counter.get_or_create(&odd).inc_by(u64::from(u32::MAX) + 7);
    let expected = Metric {
        name: "denials_total".to_owned(),
        description: "Denials by \"reason\".".to_owned(),
        data: Some(Data::Sum(Sum {
            data_points: vec![NumberDataPoint {
                attributes: attributes(&odd),
                start_time_unix_nano: START,
                time_unix_nano: NOW,
                value: Some(Value::AsInt(4_294_967_302)),
                ..NumberDataPoint::default()
            }],
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        })),
        ..Metric::default()
    };
    assert_eq!(translated(&registry), [expected]);
}

#[test]
fn a_gauge_is_a_gauge_with_its_unit() {
    let mut registry = Registry::default();
    let whole = RegisteredGauge::<i64>::default();
    whole.set(-3);
    registry.register("level", "Level", whole);
    let left = RegisteredGauge::<f64, std::sync::atomic::AtomicU64>::default();
    left.set(0.25);
    registry.register_with_unit("left", "Time left", Unit::Seconds, left);
    let gauge = |value| {
        Some(Data::Gauge(Gauge {
            data_points: vec![NumberDataPoint {
                time_unix_nano: NOW,
                value: Some(value),
                ..NumberDataPoint::default()
            }],
        }))
    };
    let level = Metric {
        name: "level".to_owned(),
        description: "Level.".to_owned(),
        data: gauge(Value::AsInt(-3)),
        ..Metric::default()
    };
    let left = Metric {
        name: "left_seconds".to_owned(),
        description: "Time left.".to_owned(),
        unit: "s".to_owned(),
        data: gauge(Value::AsDouble(0.25)),
        ..Metric::default()
    };
    assert_eq!(translated(&registry), [level, left]);
}

#[test]
fn a_histogram_has_the_count_of_each_bucket_and_no_last_bound() {
    let mut registry = Registry::default();
    let histograms = Family::<[(&'static str, &'static str); 1], RegisteredHistogram>::new_with_constructor(|| {
        RegisteredHistogram::new([0.1, 2.5])
    });
    registry.register_with_unit("wait", "Wait", Unit::Seconds, histograms.clone());
    for seconds in [0.0625, 0.5, 0.75, 8.0] {
        histograms.get_or_create(&[("cluster", "prod")]).observe(seconds);
    }
    let expected = Metric {
        name: "wait_seconds".to_owned(),
        description: "Wait.".to_owned(),
        unit: "s".to_owned(),
        data: Some(Data::Histogram(Histogram {
            data_points: vec![HistogramDataPoint {
                attributes: attributes(&[("cluster", "prod")]),
                start_time_unix_nano: START,
                time_unix_nano: NOW,
                count: 4,
                sum: Some(9.3125),
                explicit_bounds: vec![0.1, 2.5],
                bucket_counts: vec![1, 2, 1],
                ..HistogramDataPoint::default()
            }],
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        })),
        ..Metric::default()
    };
    assert_eq!(translated(&registry), [expected]);
}

#[test]
fn the_registry_of_the_process_is_translated() {
    let metrics = Metrics::default();
    metrics.count_load(ConfigPart::Policies, false);
    metrics.generation(7);
    metrics.credentials.record_mint("prod", "ok", 0.5);
    let translated = metrics.to_otlp(at(START)).unwrap();
    let named = |name: &str| translated.iter().find(|metric| metric.name == name).unwrap();
    let Some(Data::Sum(failures)) = &named("tollgate_reload_failures_total").data else {
        panic!("no sum")
    };
    assert_eq!(failures.data_points[0].value, Some(Value::AsInt(1)));
    assert_eq!(failures.data_points[0].attributes, attributes(&[("part", "policies")]));
    let Some(Data::Gauge(generation)) = &named("tollgate_snapshot_generation").data else {
        panic!("no gauge")
    };
    assert_eq!(generation.data_points[0].value, Some(Value::AsInt(7)));
    assert!(
        generation.data_points[0].time_unix_nano > NOW,
        "the time is the present"
    );
    assert_eq!(named("tollgate_credential_mint_seconds").unit, "s");
    // As many points as the text has series.
    let text = metrics.text().unwrap();
    let histogram_lines = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap();
        name.ends_with("_bucket") || name.ends_with("_count")
    };
    let series = text
        .lines()
        .filter(|line| !line.starts_with('#') && !histogram_lines(line));
    let points = translated.iter().map(|metric| match metric.data.as_ref().unwrap() {
        Data::Sum(sum) => sum.data_points.len(),
        Data::Gauge(gauge) => gauge.data_points.len(),
        Data::Histogram(histogram) => histogram.data_points.len(),
        Data::ExponentialHistogram(_) | Data::Summary(_) => panic!("an unexpected kind"),
    });
    assert_eq!(points.sum::<usize>(), series.count(), "{text}");
}

#[test]
fn a_clock_that_was_set_back_does_not_end_before_it_began() {
    let times = Times::new(at(NOW), at(START));
    assert_eq!((times.start, times.now), (NOW, NOW));
}

#[test]
fn other_text_is_refused() {
    let counter = "# HELP a A.\n# TYPE a counter\n";
    let histogram = "# HELP h H.\n# TYPE h histogram\nh_sum 1.0\nh_count 1\n";
    for (text, expected) in [
        ("a_total 1\n# EOF\n".to_owned(), Error::Line(1)),
        (counter.to_owned(), Error::NoEnd),
        (format!("{counter}b_total 1\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a 1\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a_total\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a_total one\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a_total 1 # {{}} 1\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a_total{{b=\"c}} 1\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a_total{{b=\"\\t\"}} 1\n# EOF\n"), Error::Line(3)),
        (format!("{counter}a_total{{le=\"1.0\"}} 1\n# EOF\n"), Error::Line(3)),
        (format!("{counter}# EOF\n# EOF\n"), Error::Line(3)),
        ("# HELP a A.\na 1\n# EOF\n".to_owned(), Error::Line(2)),
        ("# HELP a A.\n# TYPE a summary\n# EOF\n".to_owned(), Error::Line(2)),
        ("# HELP a A.\n# TYPE b gauge\n# EOF\n".to_owned(), Error::Line(2)),
        (
            format!("{histogram}h_bucket{{le=\"1.0\",c=\"d\"}} 1\n# EOF\n"),
            Error::Line(5),
        ),
        (
            format!("{histogram}h_bucket{{le=\"1.0\"}} 1\nh_bucket{{le=\"+Inf\"}} 0\n# EOF\n"),
            Error::Line(6),
        ),
    ] {
        assert_eq!(
            translate(&text, Times::new(at(START), at(NOW))),
            Err(expected),
            "{text}"
        );
    }
}
