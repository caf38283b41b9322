//! When documents are fetched from a cluster, and how many fetches run at once.

use std::time::Duration;

use futures_util::future::{join, join_all};

use super::super::Discovery;
use super::fake_cluster::{AGGREGATED_APPS, AGGREGATED_CORE, Answer, FakeCluster};
use super::{find, unavailable, unknown};
use tollgate_identity::clock::Clock;

const DEPLOYMENTS: &str = "apps/v1/deployments";
const NO_REQUESTS: [&str; 0] = [];

fn renamed() -> Answer {
    Answer::Content(200, AGGREGATED_APPS.replace("Deployment", "Renamed"))
}

#[tokio::test]
async fn a_new_kind_is_found_within_seconds() {
    let clock = Clock::default();
    let fake = FakeCluster::start(&[("/apis", AGGREGATED_APPS)]).await;
    let (discovery, access) = (Discovery::new(clock.clone()), fake.access());
    let gvr = "example.com/v1/widgets";
    assert_eq!(find(&discovery, &access, gvr).await, unknown("widgets.example.com/v1"));
    fake.set_answer(
        "/apis",
        Answer::Content(
            200,
            AGGREGATED_APPS.replace(
                "parents\",\"responseKind\":{}",
                "widgets\",\"responseKind\":{\"kind\":\"Widget\"}",
            ),
        ),
    );
    // Lookups of other resources that do not exist cause no more fetches.
    for number in 0..50 {
        let other = format!("example.com/v1/other{number}");
        assert!(find(&discovery, &access, &other).await.contains("does not serve"));
    }
    assert_eq!(find(&discovery, &access, gvr).await, unknown("widgets.example.com/v1"));
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
    clock.advance(Duration::from_secs(3));
    assert_eq!(find(&discovery, &access, gvr).await, "example.com/Widget");
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
}

#[tokio::test]
async fn a_failed_fetch_is_repeated_after_a_few_seconds() {
    let clock = Clock::default();
    let fake = FakeCluster::start(&[]).await;
    let (discovery, access) = (Discovery::new(clock.clone()), fake.access());
    for _ in 0..5 {
        assert_eq!(
            find(&discovery, &access, DEPLOYMENTS).await,
            unavailable("it answered 404 Not Found")
        );
    }
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
    fake.set_answer("/apis", renamed());
    clock.advance(Duration::from_secs(3));
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Renamed");
}

#[tokio::test]
async fn concurrent_lookups_share_one_fetch() {
    let fake = FakeCluster::start(&[("/api", AGGREGATED_CORE), ("/apis", AGGREGATED_APPS)]).await;
    let (discovery, access) = (Discovery::new(Clock::default()), fake.access());
    fake.hold();
    let finds = join_all((0..50).map(|_| find(&discovery, &access, DEPLOYMENTS)));
    let release = async {
        fake.wait_for_requests(1).await;
        fake.release();
    };
    let (found, ()) = join(finds, release).await;
    assert!(found.iter().all(|found| found == "apps/Deployment"), "{found:?}");
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
}

#[tokio::test]
async fn a_fetch_continues_after_its_caller_was_canceled() {
    let fake = FakeCluster::start(&[("/apis", AGGREGATED_APPS)]).await;
    let (discovery, access) = (Discovery::new(Clock::default()), fake.access());
    fake.hold();
    tokio::select! {
        biased;
        found = find(&discovery, &access, DEPLOYMENTS) => panic!("{found}"),
        () = fake.wait_for_requests(1) => {}
    }
    fake.release();
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
}

#[tokio::test]
async fn a_stale_document_is_used_while_it_is_fetched_again() {
    let clock = Clock::default();
    let fake = FakeCluster::start(&[("/apis", AGGREGATED_APPS)]).await;
    let (discovery, access) = (Discovery::new(clock.clone()), fake.access());
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    clock.advance(Duration::from_secs(590));
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
    fake.set_answer("/apis", renamed());
    fake.hold();
    clock.advance(Duration::from_secs(11));
    for _ in 0..20 {
        assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    }
    fake.wait_for_requests(1).await;
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    // A lookup of a resource that does not exist waits for the same fetch.
    let waiting = find(&discovery, &access, "apps/v1/nothing");
    let release = async { fake.release() };
    let (nothing, ()) = join(waiting, release).await;
    assert_eq!(nothing, unknown("nothing.apps/v1"));
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Renamed");
    assert_eq!(fake.take_requests(), ["GET /apis+"]);
}

#[tokio::test]
async fn an_expired_document_is_not_used() {
    let clock = Clock::default();
    let fake = FakeCluster::start(&[("/apis", AGGREGATED_APPS)]).await;
    let (discovery, access) = (Discovery::new(clock.clone()), fake.access());
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    fake.set_answer("/apis", Answer::Content(503, String::new()));
    clock.advance(Duration::from_secs(3500));
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Deployment");
    clock.advance(Duration::from_secs(101));
    assert_eq!(
        find(&discovery, &access, DEPLOYMENTS).await,
        unavailable("it answered 503 Service Unavailable")
    );
    fake.set_answer("/apis", renamed());
    clock.advance(Duration::from_secs(3));
    assert_eq!(find(&discovery, &access, DEPLOYMENTS).await, "apps/Renamed");
}

#[tokio::test]
async fn each_cluster_has_its_own_documents() {
    let one = FakeCluster::start(&[("/apis", AGGREGATED_APPS)]).await;
    let other = FakeCluster::start(&[]).await;
    other.set_answer("/apis", renamed());
    let discovery = Discovery::new(Clock::default());
    assert_eq!(find(&discovery, &one.access(), DEPLOYMENTS).await, "apps/Deployment");
    assert_eq!(
        find(&discovery.clone(), &other.access(), DEPLOYMENTS).await,
        "apps/Renamed"
    );
    assert_eq!(find(&discovery, &one.access(), DEPLOYMENTS).await, "apps/Deployment");
    assert_eq!((one.take_requests().len(), other.take_requests().len()), (1, 1));
    assert_eq!(one.take_requests(), NO_REQUESTS);
}
