//! Answers in pieces.
//!
//! HTTP/2 takes a piece of an answer as soon as its client has room for a single byte, and keeps the rest in memory. If
//! the piece were a whole answer, a client that takes a byte of each would have megabytes wait for it which nobody counts.

use bytes::Bytes;
use http_body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// Bytes of a piece, at most: those of a frame of HTTP/2.
const PIECE_BYTES: usize = 16 << 10;

/// A body that is given out in pieces, and holds something until its client has taken nearly all of it.
pub(crate) struct PiecedBody<H> {
    body: Body,
    /// The rest of the last data of the body.
    rest: Bytes,
    _held: H,
}

impl<H: Send + Unpin + 'static> PiecedBody<H> {
    /// That of an answer, which holds `held`.
    pub(crate) fn of(body: Body, held: H) -> Body {
        Body::new(Self { body, rest: Bytes::new(), _held: held })
    }
}

impl<H: Unpin> http_body::Body for PiecedBody<H> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use http_body_util::{BodyExt, Full};
    use std::sync::Arc;
    use std::task::Waker;

    #[test]
    fn an_answer_comes_in_pieces_and_holds_until_the_last_one_is_taken() {
        let held = Arc::new(());
        let all = Bytes::from(vec![7; 2 * PIECE_BYTES + 1]);
        let whole = Body::new(Full::new(all.clone()).map_err(|never| match never {}));
        let mut body = PiecedBody::of(whole, Arc::clone(&held));
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        for bytes in [PIECE_BYTES, PIECE_BYTES, 1] {
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) else {
                panic!("there is more");
            };
            let data = frame.into_data().expect("data");
            assert_eq!(data.len(), bytes);
            assert_eq!(Arc::strong_count(&held), 2);
            taken.extend_from_slice(&data);
        }
        assert_eq!(taken, all);
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
