/*
 * The calls of libfabric that amcast needs, as functions that Rust can call: most of libfabric's are inline.
 *
 * One object is everything that one remote writer reaches: a domain, an endpoint, and two registered buffers. The
 * remote writer stores into the landing buffer under its key; this process writes from the staging buffer. Each object
 * has a domain of its own, so that a key is of use on this endpoint only. One thread at a time uses an object.
 *
 * Functions return 0 or more, or a negative error number of libfabric.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Completions that the queue holds before they are read. */
#define QUEUE_SIZE 512

/* Receives that are posted for notices. */
#define NOTICES 64

/* The contexts of these receives are this and their index; those of writes are below. */
#define NOTICE_CONTEXT ((uint64_t)1 << 62)

/* A notice, with the word that only the peer of its receiver was told: anybody who finds the endpoint can send. */
struct amcast_fabric_notice {
	uint64_t value;
	uint64_t token;
};

struct amcast_fabric {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *landing;
	struct fid_mr *staging;
	struct fid_mr *received;
	unsigned char *landing_at;
	unsigned char *staging_at;
	fi_addr_t peer;
	/* Whether the completion queue has a descriptor to sleep on. */
	int waits;
	/* Whether a notice arrives behind the writes before it. */
	int ordered;
	/* The word of notices to this object, and of those to its peer. */
	uint64_t token;
	uint64_t peer_token;
	/* Where notices are received. */
	struct amcast_fabric_notice notices[NOTICES];
};

/* One event of the completion queue. */
struct amcast_fabric_event {
	/* 1: a write of ours is complete; 2: a notice of the peer; 3: an operation of ours failed; 4: a message of somebody
	 * else came, and was dropped. */
	int kind;
	/* Of a failure: libfabric's error number, positive. */
	int error;
	/* Of our writes: their number. Of a notice: its value. */
	uint64_t value;
};

/* Closes what is open, in the order that revokes: the region, then the endpoint; only then the rest. Returns the first
 * error. After an error the buffers are still to be regarded as in use. */
int amcast_fabric_close(struct amcast_fabric *f)
{
	struct fid **parts[] = {
		(struct fid **)&f->landing,  (struct fid **)&f->ep, (struct fid **)&f->staging,
		(struct fid **)&f->received, (struct fid **)&f->av, (struct fid **)&f->cq,
		(struct fid **)&f->domain,   (struct fid **)&f->fabric,
	};
	int first = 0;

	/* Each of these structures begins with its fid. */
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (*parts[i] == NULL)
			continue;
		int rc = fi_close(*parts[i]);
		if (rc != 0 && first == 0)
			first = rc;
		*parts[i] = NULL;
	}
	if (f->info != NULL)
		fi_freeinfo(f->info);
	/* Receives of an endpoint that did not close may still write into the object. */
	if (first == 0)
		free(f);
	return first;
}

static struct fi_info *hints_for(const char *provider, uint64_t order)
{
	struct fi_info *hints = fi_allocinfo();

	if (hints == NULL)
		return NULL;
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	/* No mode bit: a provider that wants operations prepared in a way of its own is not taken. */
	hints->mode = 0;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->msg_order = order;
	hints->rx_attr->msg_order = order;
	hints->tx_attr->inject_size = sizeof(struct amcast_fabric_notice);
	hints->fabric_attr->prov_name = strdup(provider);
	if (hints->fabric_attr->prov_name == NULL) {
		fi_freeinfo(hints);
		return NULL;
	}
	return hints;
}

static int open_queue(struct amcast_fabric *f)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD, .size = QUEUE_SIZE };
	int rc = fi_cq_open(f->domain, &attr, &f->cq, NULL);

	f->waits = rc == 0;
	if (rc != 0) {
		/* This provider has no descriptor to sleep on: its user polls. */
		attr.wait_obj = FI_WAIT_NONE;
		rc = fi_cq_open(f->domain, &attr, &f->cq, NULL);
	}
	return rc;
}

/* Finds the provider; one that keeps notices behind writes, if there is such a one. */
static int find_provider(struct amcast_fabric *f, const char *provider, const char *bind)
{
	uint64_t orders[] = { FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_SAS, 0 };
	int rc = -FI_ENODATA;

	for (int i = 0; i < 2 && rc != 0; i++) {
		struct fi_info *hints = hints_for(provider, orders[i]);

		if (hints == NULL)
			return -FI_ENOMEM;
		rc = fi_getinfo(FI_VERSION(1, 17), bind, NULL, bind != NULL ? FI_SOURCE : 0, hints, &f->info);
		fi_freeinfo(hints);
		f->ordered = i == 0;
	}
	return rc;
}

static int post_receive(struct amcast_fabric *f, uint64_t index)
{
	void *desc = f->received != NULL ? fi_mr_desc(f->received) : NULL;
	void *context = (void *)(uintptr_t)(NOTICE_CONTEXT | index);

	return (int)fi_recv(f->ep, &f->notices[index], sizeof(f->notices[index]), desc, FI_ADDR_UNSPEC, context);
}

static int open_parts(struct amcast_fabric *f, const char *provider, const char *bind, size_t landing_len,
		      size_t staging_len, uint64_t key, const char **step)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = 1 };
	size_t key_size;
	int rc;

	*step = "fi_getinfo";
	if ((rc = find_provider(f, provider, bind)) != 0)
		return rc;
	*step = "fi_fabric";
	if ((rc = fi_fabric(f->info->fabric_attr, &f->fabric, NULL)) != 0)
		return rc;
	*step = "fi_domain";
	if ((rc = fi_domain(f->fabric, f->info, &f->domain, NULL)) != 0)
		return rc;
	*step = "fi_cq_open";
	if ((rc = open_queue(f)) != 0)
		return rc;
	*step = "fi_av_open";
	if ((rc = fi_av_open(f->domain, &av_attr, &f->av, NULL)) != 0)
		return rc;
	*step = "fi_endpoint";
	if ((rc = fi_endpoint(f->domain, f->info, &f->ep, NULL)) != 0)
		return rc;
	*step = "fi_ep_bind";
	if ((rc = fi_ep_bind(f->ep, &f->av->fid, 0)) != 0)
		return rc;
	if ((rc = fi_ep_bind(f->ep, &f->cq->fid, FI_TRANSMIT | FI_RECV)) != 0)
		return rc;
	*step = "fi_enable";
	if ((rc = fi_enable(f->ep)) != 0)
		return rc;
	/* A provider that does not choose keys itself takes ours, of as many bytes as it says. */
	key_size = f->info->domain_attr->mr_key_size;
	if (key_size < sizeof(key))
		key &= ((uint64_t)1 << (8 * key_size)) - 1;
	*step = "fi_mr_reg";
	rc = fi_mr_reg(f->domain, f->landing_at, landing_len, FI_REMOTE_WRITE, 0, key, 0, &f->landing, NULL);
	if (rc != 0)
		return rc;
	/* The keys of these are told to nobody, and they grant no remote access. */
	rc = fi_mr_reg(f->domain, f->staging_at, staging_len, FI_WRITE, 0, key ^ 1, 0, &f->staging, NULL);
	if (rc != 0)
		return rc;
	rc = fi_mr_reg(f->domain, f->notices, sizeof(f->notices), FI_RECV, 0, key ^ 2, 0, &f->received, NULL);
	if (rc != 0)
		return rc;
	*step = "fi_recv";
	for (uint64_t i = 0; i < NOTICES && rc == 0; i++)
		rc = post_receive(f, i);
	return rc;
}

/* Opens an object on `provider` at the local address `bind`, any if null, with these buffers. `key` and `token` are
 * numbers that nobody can guess. On an error `step` names the call that failed. */
int amcast_fabric_open(const char *provider, const char *bind, unsigned char *landing, size_t landing_len,
		       unsigned char *staging, size_t staging_len, uint64_t key, uint64_t token,
		       struct amcast_fabric **out, const char **step)
{
	struct amcast_fabric *f = calloc(1, sizeof(*f));
	int rc;

	*step = "calloc";
	if (f == NULL)
		return -FI_ENOMEM;
	f->landing_at = landing;
	f->staging_at = staging;
	f->peer = FI_ADDR_UNSPEC;
	f->token = token;
	rc = open_parts(f, provider, bind, landing_len, staging_len, key, step);
	if (rc != 0) {
		/* Nobody knows the endpoint yet, so nothing is on its way to the buffers. */
		amcast_fabric_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

/* What a peer has to know: the endpoint's name, of at most `*len` bytes, and where and under which key it writes. */
int amcast_fabric_address(struct amcast_fabric *f, unsigned char *name, size_t *len, uint64_t *base, uint64_t *key)
{
	int virtual = (f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;

	*base = virtual ? (uint64_t)(uintptr_t)f->landing_at : 0;
	*key = fi_mr_key(f->landing);
	return fi_getname(&f->ep->fid, name, len);
}

/* Whether names of endpoints are socket addresses, which begin with their family. */
int amcast_fabric_names_sockets(struct amcast_fabric *f)
{
	uint32_t format = f->info->addr_format;

	return format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6 || format == FI_SOCKADDR_IB;
}

/* The peer that the object writes to from here on, by a name as long as those of this object's own provider and of their
 * family, and the word of notices to it. */
int amcast_fabric_meet(struct amcast_fabric *f, const unsigned char *name, uint64_t token)
{
	int inserted = fi_av_insert(f->av, name, 1, &f->peer, 0, NULL);

	f->peer_token = token;
	if (inserted == 1)
		return 0;
	return inserted < 0 ? inserted : -FI_EINVAL;
}

/* Writes `len` bytes from `from` in the staging buffer to `target` under `key`. The write has the number `id`, and is
 * complete when its bytes are in the peer's memory. -FI_EAGAIN: not now; poll and try again.
 *
 * The write announces nothing to its target: libfabric 1.17 ends the process of a target whose connection breaks in the
 * middle of a write with remote completion data. */
int amcast_fabric_write(struct amcast_fabric *f, size_t from, size_t len, uint64_t target, uint64_t key, uint64_t id)
{
	struct iovec local = { .iov_base = f->staging_at + from, .iov_len = len };
	struct fi_rma_iov remote = { .addr = target, .len = len, .key = key };
	void *desc = fi_mr_desc(f->staging);
	struct fi_msg_rma msg = {
		.msg_iov = &local,
		.desc = &desc,
		.iov_count = 1,
		.addr = f->peer,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = (void *)(uintptr_t)id,
	};

	return (int)fi_writemsg(f->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/* Sends the peer a notice. -FI_EAGAIN: not now; poll and try again. */
int amcast_fabric_notify(struct amcast_fabric *f, uint64_t value)
{
	struct amcast_fabric_notice notice = { .value = value, .token = f->peer_token };

	return (int)fi_inject(f->ep, &notice, sizeof(notice), f->peer);
}

/* Whether a notice arrives behind the writes that were begun before it, in the order of sending. */
int amcast_fabric_orders(struct amcast_fabric *f)
{
	return f->ordered;
}

/* A message of `len` bytes came, or one that was too long. The receive is posted again. */
static int take_notice(struct amcast_fabric *f, uint64_t index, size_t len, struct amcast_fabric_event *event)
{
	struct amcast_fabric_notice notice = f->notices[index];
	int rc = post_receive(f, index);

	event->kind = len == sizeof(notice) && notice.token == f->token ? 2 : 4;
	event->error = 0;
	event->value = notice.value;
	return rc != 0 ? rc : 1;
}

/* Makes progress, and takes the next event. 1 if there is one, 0 if not. */
int amcast_fabric_poll(struct amcast_fabric *f, struct amcast_fabric_event *event)
{
	struct fi_cq_data_entry entry = { 0 };
	struct fi_cq_err_entry failure = { 0 };
	ssize_t rc = fi_cq_read(f->cq, &entry, 1);
	uint64_t context = (uint64_t)(uintptr_t)entry.op_context;

	if (rc == 1) {
		if (context >= NOTICE_CONTEXT)
			return take_notice(f, context - NOTICE_CONTEXT, entry.len, event);
		event->error = 0;
		event->kind = 1;
		event->value = context;
		return 1;
	}
	if (rc == -FI_EAGAIN || rc == 0)
		return 0;
	if (rc != -FI_EAVAIL)
		return (int)rc;
	rc = fi_cq_readerr(f->cq, &failure, 0);
	if (rc == -FI_EAGAIN || rc == 0)
		return 0;
	if (rc < 0)
		return (int)rc;
	context = (uint64_t)(uintptr_t)failure.op_context;
	/* A peer sends none that is too long, and one of somebody else does not end the stream. */
	if (failure.err == FI_ETRUNC && context >= NOTICE_CONTEXT)
		return take_notice(f, context - NOTICE_CONTEXT, SIZE_MAX, event);
	event->kind = 3;
	event->error = failure.err != 0 ? failure.err : FI_EIO;
	event->value = context;
	return 1;
}

/* The descriptor on which its user may sleep, or -1 if the provider has none. */
int amcast_fabric_wait_fd(struct amcast_fabric *f)
{
	int fd = -1;

	if (!f->waits || fi_control(&f->cq->fid, FI_GETWAIT, &fd) != 0)
		return -1;
	return fd;
}

/* Whether nothing is to be done before the descriptor is ready. */
int amcast_fabric_may_sleep(struct amcast_fabric *f)
{
	struct fid *queue = &f->cq->fid;

	/* Without a descriptor nothing can be missed that would have been told: the caller looks again after a while. */
	return !f->waits || fi_trywait(f->fabric, &queue, 1) == 0;
}

/* Whether the code at this address belongs to a library under libfabric's provider psm. */
static int is_of_psm(void *code)
{
	Dl_info info;

	if (dladdr(code, &info) == 0 || info.dli_fname == NULL)
		return 0;
	return strstr(info.dli_fname, "libinfinipath") != NULL || strstr(info.dli_fname, "libpsm") != NULL;
}

/* Gives signals back that libraries under provider psm take when they are loaded, used or not: libinfinipath ends a process that
 * is asked to end with a report of a crash and a failure, also behind another handler that calls the one before it. Returns
 * how many there were. */
int amcast_fabric_release_signals(void)
{
	const int signals[] = { SIGINT, SIGTERM, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV };
	int released = 0;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigaction action;
		void *code = NULL;

		if (sigaction(signals[i], NULL, &action) != 0)
			continue;
		/* A pointer to a function is no pointer to an object in C, and dladdr wants one. */
		if ((action.sa_flags & SA_SIGINFO) != 0)
			memcpy(&code, &action.sa_sigaction, sizeof(code));
		else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
			memcpy(&code, &action.sa_handler, sizeof(code));
		if (code == NULL || !is_of_psm(code))
			continue;
		memset(&action, 0, sizeof(action));
		action.sa_handler = SIG_DFL;
		released += sigaction(signals[i], &action, NULL) == 0;
	}
	return released;
}

/* Libfabric's words for an error number. */
const char *amcast_fabric_error(int error)
{
	return fi_strerror(error < 0 ? -error : error);
}

/* The error number of "not now". */
int amcast_fabric_again(void)
{
	return -FI_EAGAIN;
}
