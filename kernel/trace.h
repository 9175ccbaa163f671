/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: /sys/kernel/tracing/events/linkspan. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM linkspan

#if !defined(LINKSPAN_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define LINKSPAN_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(linkspan_state,
	    TP_PROTO(int link, u32 state, u32 epoch),
	    TP_ARGS(link, state, epoch),
	    TP_STRUCT__entry(__field(int, link)
			     __field(u32, state)
			     __field(u32, epoch)),
	    TP_fast_assign(__entry->link = link;
			   __entry->state = state;
			   __entry->epoch = epoch;),
	    TP_printk("link %d state %u epoch %u", __entry->link, __entry->state, __entry->epoch)
);

DECLARE_EVENT_CLASS(linkspan_op,
		    TP_PROTO(int link, const struct ls_op *op, u64 length, int result),
		    TP_ARGS(link, op, length, result),
		    TP_STRUCT__entry(__field(int, link)
				     __field(u32, channel)
				     __field(u32, opcode)
				     __field(int, result)
				     __field(u64, length)
				     __field(u64, cookie)),
		    TP_fast_assign(__entry->link = link;
				   __entry->channel = op->channel;
				   __entry->opcode = op->opcode;
				   __entry->result = result;
				   __entry->length = length;
				   __entry->cookie = op->cookie;),
		    TP_printk("link %d channel %u opcode %u length %llu cookie %llu result %d", __entry->link,
			      __entry->channel, __entry->opcode, __entry->length, __entry->cookie, __entry->result)
);

DEFINE_EVENT(linkspan_op, linkspan_submit,
	     TP_PROTO(int link, const struct ls_op *op, u64 length, int result),
	     TP_ARGS(link, op, length, result)
);

DEFINE_EVENT(linkspan_op, linkspan_complete,
	     TP_PROTO(int link, const struct ls_op *op, u64 length, int result),
	     TP_ARGS(link, op, length, result)
);

TRACE_EVENT(linkspan_control,
	    TP_PROTO(int link, bool out, u32 type, u32 channel, u32 id, u32 length),
	    TP_ARGS(link, out, type, channel, id, length),
	    TP_STRUCT__entry(__field(int, link)
			     __field(bool, out)
			     __field(u32, type)
			     __field(u32, channel)
			     __field(u32, id)
			     __field(u32, length)),
	    TP_fast_assign(__entry->link = link;
			   __entry->out = out;
			   __entry->type = type;
			   __entry->channel = channel;
			   __entry->id = id;
			   __entry->length = length;),
	    TP_printk("link %d %s type %u channel %u id %u length %u", __entry->link, __entry->out ? "out" : "in",
		      __entry->type, __entry->channel, __entry->id, __entry->length)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
