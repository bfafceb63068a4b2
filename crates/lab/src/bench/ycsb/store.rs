//! The stores as a client sees them: a connection of each kind, and what it does.

use bytes::Bytes;
use std::io;
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// The wire protocol of a store's clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoreLanguage {
    /// The Redis protocol; scans by `RANGE`, which is ours.
    Redis,
    /// etcd's gRPC.
    Etcd,
}

/// One connection to a store.
pub(super) enum YcsbClient {
    Redis(RespConnection),
    Etcd(Grpc<Channel>),
}

impl YcsbClient {
    /// Connects.
    pub(super) async fn open(speaks: StoreLanguage, at: &str) -> Result<Self, String> {
        match speaks {
            StoreLanguage::Redis => {
                let opened = async {
                    let stream = TcpStream::connect(at).await?;
                    stream.set_nodelay(true)?;
                    Ok(Self::Redis(RespConnection { stream, got: Vec::new(), out: Vec::new() }))
                };
                opened.await.map_err(|e: io::Error| format!("{at}: {e}"))
            }
            StoreLanguage::Etcd => {
                let endpoint = Endpoint::from_shared(format!("http://{at}"));
                let endpoint = endpoint.map_err(|e| e.to_string())?.tcp_nodelay(true);
                let channel = endpoint.connect().await.map_err(|e| format!("{at}: {e}"))?;
                Ok(Self::Etcd(Grpc::new(channel)))
            }
        }
    }

    /// Reads a record; whether it is there.
    pub(super) async fn read(&mut self, key: &str) -> Result<bool, String> {
        match self {
            Self::Redis(redis) => redis.call(&[b"GET", key.as_bytes()]).await.map(|n| n > 0),
            Self::Etcd(grpc) => {
                let key = Bytes::copy_from_slice(key.as_bytes());
                range(grpc, RangeRequest { key, ..RangeRequest::default() }).await.map(|n| n > 0)
            }
        }
    }

    /// Writes a record.
    pub(super) async fn write(&mut self, key: &str, value: Vec<u8>) -> Result<(), String> {
        match self {
            Self::Redis(redis) => redis.call(&[b"SET", key.as_bytes(), &value]).await.map(drop),
            Self::Etcd(grpc) => {
                let key = Bytes::copy_from_slice(key.as_bytes());
                put(grpc, PutRequest { key, value: value.into() }).await
            }
        }
    }

    /// Reads up to `count` records from `key` on, in the order of keys; how many there were.
    pub(super) async fn scan(&mut self, key: &str, count: u64) -> Result<u64, String> {
        match self {
            Self::Redis(redis) => {
                let words: [&[u8]; 6] = [
                    b"RANGE",
                    key.as_bytes(),
                    b"",
                    b"LIMIT",
                    &count.to_string().into_bytes(),
                    b"WITHVALUES",
                ];
                redis.call(&words).await.map(|items| items / 2)
            }
            Self::Etcd(grpc) => {
                let key = Bytes::copy_from_slice(key.as_bytes());
                // A lone zero byte means "to the end".
                let range_end = Bytes::from_static(&[0]);
                range(grpc, RangeRequest { key, range_end, limit: count as i64 }).await
            }
        }
    }
}

/// A connection that speaks the Redis protocol.
pub(super) struct RespConnection {
    stream: TcpStream,
    got: Vec<u8>,
    out: Vec<u8>,
}

impl RespConnection {
    /// One command: how many items its answer has, 0 for none.
    async fn call(&mut self, words: &[&[u8]]) -> Result<u64, String> {
        self.out.clear();
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
        self.send().await.map_err(|e| e.to_string())?;
        loop {
            match answer(&self.got)? {
                Some((length, items)) => {
                    self.got.drain(..length);
                    return Ok(items);
                }
                None => self.receive().await.map_err(|e| e.to_string())?,
            }
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            self.stream.writable().await?;
            match self.stream.try_write(&self.out[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<()> {
        self.stream.readable().await?;
        self.got.reserve(16 << 10);
        match self.stream.try_read_buf(&mut self.got) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }
}

/// How long the answer at the front of `bytes` is and how many items it has, once all of it is there.
///
/// # Errors
/// With the error that it is, or when it is no answer of RESP2.
fn answer(bytes: &[u8]) -> Result<Option<(usize, u64)>, String> {
    let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") else { return Ok(None) };
    let line = &bytes[1..end];
    let wrong = || "the answer is none of RESP2".to_string();
    let number = || {
        let text = std::str::from_utf8(line).map_err(|_| wrong())?;
        text.parse::<i64>().map_err(|_| wrong())
    };
    match bytes[0] {
        b'+' | b':' => Ok(Some((end + 2, 1))),
        b'-' => Err(String::from_utf8_lossy(line).into_owned()),
        b'$' => match number()? {
            ..0 => Ok(Some((end + 2, 0))),
            n => {
                let whole = end + 4 + n as usize;
                Ok((bytes.len() >= whole).then_some((whole, 1)))
            }
        },
        b'*' => {
            let (mut at, mut items) = (end + 2, 0);
            for _ in 0..number()?.max(0) {
                let Some((length, _)) = answer(bytes.get(at..).unwrap_or_default())? else {
                    return Ok(None);
                };
                at += length;
                items += 1;
            }
            Ok(Some((at, items)))
        }
        _ => Err(wrong()),
    }
}

/// `etcdserverpb.RangeRequest`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
    #[prost(int64, tag = "3")]
    limit: i64,
}

/// `etcdserverpb.RangeResponse`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

/// `mvccpb.KeyValue`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

/// `etcdserverpb.PutRequest`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `etcdserverpb.PutResponse`, of which nothing is used.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

async fn range(grpc: &mut Grpc<Channel>, request: RangeRequest) -> Result<u64, String> {
    grpc.ready().await.map_err(|e| e.to_string())?;
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
    let codec = ProstCodec::<RangeRequest, RangeResponse>::default();
    let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
    Ok(answer.map_err(|e| e.to_string())?.into_inner().kvs.len() as u64)
}

async fn put(grpc: &mut Grpc<Channel>, request: PutRequest) -> Result<(), String> {
    grpc.ready().await.map_err(|e| e.to_string())?;
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
    let codec = ProstCodec::<PutRequest, PutResponse>::default();
    grpc.unary(tonic::Request::new(request), path, codec).await.map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_their_items_once_all_is_there() {
        for (whole, items) in [
            ("+OK\r\n", 1),
            ("$-1\r\n", 0),
            ("$3\r\nabc\r\n", 1),
            ("*0\r\n", 0),
            ("*2\r\n$1\r\na\r\n$-1\r\n", 2),
        ] {
            for cut in 0..whole.len() {
                assert_eq!(answer(&whole.as_bytes()[..cut]), Ok(None), "{whole:?}");
            }
            let more = format!("{whole}+");
            assert_eq!(answer(more.as_bytes()), Ok(Some((whole.len(), items))), "{whole:?}");
        }
        assert_eq!(answer(b"-ERR no\r\n"), Err("ERR no".to_string()));
        assert!(answer(b"?\r\n").is_err() && answer(b"$x\r\n").is_err());
    }

    #[test]
    fn messages_of_etcd_are_as_its_proto_says() {
        use prost::Message;
        let put = PutRequest { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") };
        assert_eq!(put.encode_to_vec(), [0x0a, 1, b'k', 0x12, 1, b'v']);
        let bytes = [0x0a, 0, 0x12, 6, 0x0a, 1, b'k', 0x2a, 1, b'v', 0x20, 1];
        let read = RangeResponse::decode(&bytes[..]).unwrap();
        assert_eq!((read.kvs.len(), &read.kvs[0].value[..]), (1, &b"v"[..]));
    }
}
