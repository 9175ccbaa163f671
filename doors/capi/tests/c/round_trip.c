// Two transports of one process, from C: each kind of call once, and what must be refused.
#include "linkspan.h"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#define OK(x) do{int s_=(x); if(s_){printf("line %d: %d %s\n",__LINE__,s_,linkspan_last_error());exit(1);} }while(0)
#define IS(want,x) do{int s_=(x); if(s_!=(want)){printf("line %d: %d not %d: %s\n",__LINE__,s_,(want),linkspan_last_error());exit(1);} }while(0)
int main(void){
  linkspan_setting set[]={{"LINKSPAN_IFNAME","=lo"},{"LINKSPAN_PATH","tcp"},{"LINKSPAN_STATS_DIR","off"}};
  linkspan_context*c; OK(linkspan_context_open(set,3,NULL,NULL,&c));
  linkspan_transport*a,*b; OK(linkspan_transport_open(c,0,&a)); OK(linkspan_transport_open(c,0,&b));
  char url[LINKSPAN_URL_SIZE]; OK(linkspan_transport_bind(b,url,sizeof url)); OK(linkspan_transport_connect(a,url,30000)); OK(linkspan_transport_wait_connected(b,30000));
  char in[4096]={0},out[4096]; memset(out,7,sizeof out);
  linkspan_memory*mi,*mo; OK(linkspan_memory_register(in,4096,0,&mi)); OK(linkspan_memory_register(out,4096,LINKSPAN_READ_ONLY,&mo));
  linkspan_remote r; unsigned reused; OK(linkspan_transport_expose(b,(linkspan_view){mi,0,4096},3,&r,&reused));
  linkspan_notify n={42,0,0}; uint64_t v;
  OK(linkspan_write(a,(linkspan_view){mo,0,4096},&r,&n,30000,&v)); if(v!=4096) return 2;
  OK(linkspan_wait_for_write(b,30000,&v)); if(v!=42||memcmp(in,out,4096)) return 3;
  linkspan_op*op; OK(linkspan_wait_for_write_start(b,50,&op)); unsigned d; OK(linkspan_op_test(op,&d,NULL)); if(d) return 4;
  IS(LINKSPAN_MEMORY_IN_USE,linkspan_memory_release(mi,0)); IS(LINKSPAN_TIMEOUT,linkspan_op_wait(op,&v)); OK(linkspan_op_free(op)); IS(LINKSPAN_HANDLE,linkspan_op_free(op));
  IS(LINKSPAN_READ_ONLY_MEMORY,linkspan_read(a,(linkspan_view){mo,0,8},&r,100,NULL)); IS(LINKSPAN_BOUNDS,linkspan_write(a,(linkspan_view){mo,4000,97},&r,NULL,100,NULL));
  IS(LINKSPAN_NULL,linkspan_write(a,(linkspan_view){mo,0,8},NULL,NULL,100,NULL)); IS(LINKSPAN_HANDLE,linkspan_wait_for_write((linkspan_transport*)mo,0,NULL));
  linkspan_part p[2]={{{mo,0,8},r},{{mo,8,8},r}}; OK(linkspan_write_batch(a,p,2,NULL,30000,&v)); if(v!=16) return 5;
  OK(linkspan_transport_unexpose(b,&r,1000)); IS(LINKSPAN_REMOTE_ACCESS,linkspan_write(a,(linkspan_view){mo,0,8},&r,NULL,30000,NULL));
  OK(linkspan_memory_release(mi,1000)); IS(LINKSPAN_HANDLE,linkspan_memory_release(mi,0));
  OK(linkspan_transport_close(a)); IS(LINKSPAN_HANDLE,linkspan_transport_close(a)); IS(LINKSPAN_BROKEN,linkspan_wait_for_write(b,30000,NULL));
  OK(linkspan_transport_close(b)); OK(linkspan_context_close(c)); OK(linkspan_memory_release(mo,1000)); return 0;}
