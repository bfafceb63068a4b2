//! Pages for clients of a host whose clock shows no date that can be written: see [`dates`](crate::gateway::dates).
//!
//! One request of a connection is read, and its answer has no date.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode, header};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower::Service;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Bytes of a page.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// Answers one request.
pub(super) async fn serve<S>(mut stream: S, pages: Router) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(head) = read_head(&mut stream).await? else { return Ok(()) };
    let (answer, is_head) = match request(&head) {
        Some((request, is_head)) => (answer(pages, request).await, is_head),
        None => (refusal(StatusCode::BAD_REQUEST), false),
    };
    let (parts, body) = answer.into_parts();
    let page = to_bytes(body, PAGE_BYTES_MAX).await.map_err(io::Error::other)?;
    let mut out = format!("HTTP/1.1 {}\r\n", parts.status).into_bytes();
    let kind = parts.headers.get(header::CONTENT_TYPE);
    if let Some(kind) = kind {
        out.extend_from_slice(b"content-type: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("content-length: {}\r\n", page.len()).as_bytes());
    out.extend_from_slice(b"connection: close\r\n\r\n");
    if !is_head {
        out.extend_from_slice(&page);
    }
    stream.write_all(&out).await?;
    stream.shutdown().await
}

/// The head of a request; none if the connection ends before.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut bytes) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut bytes).await?;
        if count == 0 || head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        head.extend_from_slice(&bytes[..count]);
    }
    Ok(Some(head))
}

/// The request of this head, and whether it asks for the head of the answer alone.
fn request(head: &[u8]) -> Option<(Request<Body>, bool)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let method = words.next()?;
    let path = words.next()?;
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let request = Request::builder().method(method).uri(path).body(Body::empty());
    Some((request.ok()?, method == "HEAD"))
}

async fn answer(mut pages: Router, request: Request<Body>) -> Response<Body> {
    match pages.call(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// The bytes of the answer to these bytes.
    fn served(request: &[u8]) -> String {
        let pages = Router::new().route("/healthz", get(|| async { "ok\n" }));
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let mut cx = Context::from_waker(Waker::noop());
        let mut answer = Vec::new();
        let both = async {
            client.write_all(request).await.expect("there is room");
            let (ended, read) = tokio::join!(serve(server, pages), client.read_to_end(&mut answer));
            ended.and(read).expect("it is served");
        };
        assert_eq!(pin!(both).as_mut().poll(&mut cx), Poll::Ready(()));
        String::from_utf8(answer).expect("text")
    }

    #[test]
    fn pages_without_a_date_are_answered_as_others() {
        let _limit = amcast_test_policy::time_limit();
        let page = served(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nok\n"),
            "{page}"
        );
        assert!(page.contains("content-length: 3\r\n") && !page.contains("date:"), "{page}");
        assert!(served(b"HEAD /healthz HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(served(b"GET /nothing HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(served(b"POST /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(served(b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    }
}
