//! Starts many requests in order and waits for them together.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// A request in flight, or already answered.
pub(crate) enum Started<'a, T> {
    Answered(T),
    Waiting(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

/// Polls `request` once, which makes the client enqueue it: requests that are started one after the other are sent in
/// that order, whichever is awaited first.
pub(crate) async fn start<'a, T>(request: impl Future<Output = T> + Send + 'a) -> Started<'a, T> {
    let mut request: Pin<Box<dyn Future<Output = T> + Send + 'a>> = Box::pin(request);
    match poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await {
        Poll::Ready(answer) => Started::Answered(answer),
        Poll::Pending => Started::Waiting(request),
    }
}

impl<'a, T: Send + 'a> IntoFuture for Started<'a, T> {
    type Output = T;
    type IntoFuture = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Started::Answered(answer) => Box::pin(std::future::ready(answer)),
            Started::Waiting(request) => request,
        }
    }
}
