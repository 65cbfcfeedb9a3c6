//! Trace context: passed on, kept with the outcome, told to whoever makes spans, and never to a caller.

use std::sync::{Arc, Mutex};

use http::Response;
use semel_http::{Body, Decided, Keeping};
use tower::ServiceExt;

use crate::support::{Shop, post, respond, with};

const FIRST: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SECOND: &str = "00-11111111111111111111111111111111-2222222222222222-00";

async fn ask(shop: &Shop, trace: Option<&'static str>) -> Response<Body> {
    let request = match trace {
        Some(trace) => with(post("k"), "traceparent", trace),
        None => post("k"),
    };
    shop.service.clone().oneshot(request).await.unwrap()
}

fn decided(response: &Response<Body>) -> Option<(&'static str, Option<String>)> {
    let decided = response.extensions().get::<Decided>()?;
    assert_eq!(&*decided.route, "otherwise");
    Some((decided.result, decided.original.as_ref().map(|original| original.as_str().to_owned())))
}

#[tokio::test]
async fn v1_a_replay_knows_the_run_that_it_goes_back_to() {
    for keeping in [Keeping::Whole, Keeping::Head] {
        let shop = Shop::with(
            |options| options.keeping = keeping.clone(),
            |_, _| async { Ok(respond(201, &[("semel-trace", SECOND), ("traceparent", SECOND)], "done")) },
        );
        let first = ask(&shop, Some(FIRST)).await;
        assert_eq!(decided(&first), Some(("run", None)));
        let replay = ask(&shop, Some(SECOND)).await;
        assert_eq!(decided(&replay), Some(("replay", Some(FIRST.to_owned()))));
        assert!(!first.headers().contains_key("semel-trace"), "the service's own is not the callers'");
        for header in ["semel-trace", "traceparent"] {
            assert!(!replay.headers().contains_key(header), "{header} in a replay");
        }
        // Without spans nothing is told.
        assert_eq!(decided(&ask(&shop, None).await), None);
    }
}

#[tokio::test]
async fn v1_a_run_without_a_context_is_linked_to_by_nobody() {
    let shop = Shop::answering(201, "");
    ask(&shop, None).await;
    assert_eq!(decided(&ask(&shop, Some(FIRST)).await), Some(("replay", None)));
}

#[tokio::test]
async fn v1_the_callers_context_reaches_the_service_as_it_came() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let shop = Shop::new(move |_, request| {
        let line = |name| request.headers().get(name).cloned();
        sees.lock().unwrap().push((line("traceparent"), line("tracestate")));
        async { Ok(respond(201, &[], "")) }
    });
    for (trace, state) in [(FIRST, "vendor=1"), ("nonsense", "other=2")] {
        let key = if trace == FIRST { "a" } else { "b" };
        let request = with(with(post(key), "traceparent", trace), "tracestate", state);
        shop.service.clone().oneshot(request).await.unwrap();
    }
    let seen = seen.lock().unwrap();
    let lines = |trace: &'static str, state: &'static str| (trace.parse().ok(), state.parse().ok());
    assert_eq!(*seen, [lines(FIRST, "vendor=1"), lines("nonsense", "other=2")]);
}
