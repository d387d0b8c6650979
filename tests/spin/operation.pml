/*
 * One operation, by its maker and by survivors: locks of shard and run, a block that is named and then
 * taken, PREPARED, the commit in the lane, apply, IDLE; death before every store; reapers that die; slots
 * that are used again; epochs sealed and batches written meanwhile by anybody.
 *
 *   -DVISITOR     somebody else who reaps once, and may die over it: reapers die though few others are there
 *   -DCHAIN       operations may be chains: a chunk (op.chunk), then the record that closes it and is the operation's
 * No other flag is the code. Each of these leaves out or changes one rule, and must give an error:
 *   BAD_GEARLY    the open epoch is read before the locks are taken
 *   BAD_NOE       the commit looks at the offset only: a lane raised past its epoch does not stop it
 *   BAD_TWO       PREPARED is stored before the lane offset (two words)
 *   BAD_STORE     a sealer raises a lane with a store instead of a compare-and-swap
 *   BAD_SKIPDEAD  a sealer leaves out lanes of slots that nobody lives in
 *   BAD_HALF      a writer trusts that the epoch is sealed instead of raising every lane itself
 *   BAD_HDR       after a failed commit the record keeps its old epoch
 *   BAD_GENFIRST  the reaper ends the generation before the descriptor is IDLE (with VISITOR)
 *   BAD_TAKEFIRST a block's tag is swapped in before it is named
 *   BAD_COUNT     the run's count is incremented by apply, not stored as an absolute value
 *   BAD_CHAINPREP a chain is PREPARED at its first chunk, not at the record that closes it (with CHAIN)
 */
#ifndef N
#define N 2
#endif
#ifndef OPS
#define OPS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef SEALS
#define SEALS 1
#endif
#ifdef VISITOR
#define M (N+2)
#else
#define M (N+1)
#endif
#ifdef CHAIN
#define OM (2*OPS)
#else
#define OM OPS
#endif
#define EM (N*OPS+SEALS+3)
#define BLOCKS (N+1)
#define NONE 255
#define IDLE 0
#define TAKING 1
#define PREP 2
#define FREE 0
#define LIVE 1
#define ID(s) (1+(s)+M*gen[s])
#define SLOT(w) (((w)-1)%M)
#define GEN(w) (((w)-1)/M)
#define OVER(w) (gen[SLOT(w)]!=GEN(w))
#define LFREE(w) ((w)==0 || OVER(w))
#define STUCK(w) (stp[SLOT(w)] || (dead[SLOT(w)] && slot[SLOT(w)]==LIVE && reaper[SLOT(w)]!=0 && !OVER(reaper[SLOT(w)]) && stp[SLOT(reaper[SLOT(w)])]))
#define BIT(i,k) (1<<((i)*OM+(k)))
byte G=1, durable;
byte le[N], lo[N];                       /* lane word: epoch, offset */
byte hep[N*OM], hver[N*OM];              /* lane records */
byte st[N], doff[N];                     /* descriptor: state and offset are one word */
byte dblk[N], dtag[N], dold[N], dcnt[N]; /* redo image: block taken, tag, block to free, the run's count */
bit dend[N];                             /* the operation counts in the run */
byte otag[N];                            /* tag of the block to free */
byte tags;                               /* never used twice */
byte shardL, runL;
byte ra, rb, re, rblk=0;                 /* the record: two halves, its epoch, its block */
byte rcount;                             /* the run's count */
byte blk[BLOCKS];                        /* tags; 0: free */
byte gen[M], slot[M], reaper[M]; bit dead[M], stp[M], fin[M];
byte disk[EM]; bit done[EM];
byte deaths, stops;
byte cnt, ends;                          /* ghosts: commits, and those that count in the run */
byte retmax;                             /* ghost: highest epoch of an operation that has returned */
bit com[N*OM];                           /* ghost: committed */

#define STEP(x) atomic { if :: deaths<DEATHS && me!=N -> deaths++; dead[me]=1; goto killed :: stops<STOPS && me<N -> stops++; stp[me]=1; goto halted :: true -> x fi }
#ifdef BAD_COUNT
#define SETCOUNT(d) rcount++
#else
#define SETCOUNT(d) rcount=dcnt[d]
#endif
#define GIVE(b,t) if :: blk[b]==(t) -> blk[b]=0 :: else fi
/* record.open .. record.close, apply.counts, slab.given */
#define APPLY(d,k) \
  STEP(re=hep[(d)*OM+(k)]; ra=hver[(d)*OM+(k)]); \
  STEP(rb=hver[(d)*OM+(k)]; rblk=dblk[d]); \
  if :: dend[d] -> STEP(SETCOUNT(d)) :: else fi; \
  STEP(GIVE(dold[d],otag[d]))

inline REAP(d) {
  got=0;
  STEP(if :: dead[d] && slot[d]==LIVE && (reaper[d]==0 || OVER(reaper[d]) || dead[SLOT(reaper[d])]) -> reaper[d]=ID(me); got=1 :: else fi);   /* reap.entered */
  if
  :: got ->
     STEP(rs=st[d]; rl=doff[d]);
     STEP(rt=lo[d]);
     if
     :: rs==PREP && rt>rl -> APPLY(d,rl)                                            /* redo */
     :: !(rs==PREP && rt>rl) && rs!=IDLE && dblk[d]!=NONE -> STEP(GIVE(dblk[d],dtag[d]))   /* undo */
     :: else
     fi;                                                                            /* reap.settled */
#ifdef BAD_GENFIRST
     STEP(gen[d]++);
     STEP(st[d]=IDLE);
#else
     STEP(st[d]=IDLE);                                                              /* reap.idle */
     STEP(gen[d]++);                                                                /* reap.generation: its locks are free */
#endif
     STEP(reaper[d]=0; dead[d]=0; slot[d]=FREE);                                    /* reap.phase .. sweep.freed */
     rs=0; rl=0; rt=0; got=0
  :: else
  fi
}

inline RAISE(E) {              /* rf_lanes_raise: until every lane is past E */
  i=0;
  do
  :: i<N ->
     STEP(xe=le[i]; xo=lo[i]);
     if
#ifdef BAD_SKIPDEAD
     :: slot[i]!=LIVE && xe<=E -> i++
     :: xe>E -> i++
#else
     :: xe>E -> i++                                                                 /* log.raised */
#endif
     :: else ->
#ifdef BAD_STORE
        STEP(le[i]=E+1; lo[i]=xo)
#else
        STEP(if :: le[i]==xe && lo[i]==xo -> le[i]=E+1 :: else fi)
#endif
     fi;
     xe=0; xo=0
  :: else -> break
  od; i=0
}
inline SEALG(E) { STEP(if :: G==E && G<EM-1 -> G=E+1 :: else fi) }                  /* log.before_seal, log.sealed */

inline HELP() {                /* advance(): write the batch after durable, if it is sealed */
  E=durable+1;
  if
  :: E<G ->
#ifndef BAD_HALF
     RAISE(E);
#endif
     mask=0; i=0;
     do
     :: i<N ->
#ifdef BAD_SKIPDEAD
        if :: slot[i]==LIVE ->
#endif
        STEP(k=0; do :: k<lo[i] -> if :: hep[i*OM+k]==E -> mask=mask|BIT(i,k) :: else fi; k++ :: else -> break od; k=0);   /* log.copied */
#ifdef BAD_SKIPDEAD
        :: else fi;
#endif
        i++
     :: else -> break
     od; i=0;
     STEP(assert(disk[E]==NONE || disk[E]==mask); disk[E]=mask);                    /* log.written: same bytes, same place */
     STEP(done[E]=1; mask=0);                                                       /* log.done */
     STEP(if :: durable==E-1 && done[E] -> durable=E :: else fi)                    /* log.durable */
  :: else
  fi; E=0
}

#define LOCK(L) \
  do \
  :: atomic { LFREE(L) -> L=ID(me); break } \
  :: atomic { !LFREE(L) && dead[SLOT(L)] && slot[SLOT(L)]==LIVE && !STUCK(L) -> vic=SLOT(L) }; REAP(vic); vic=0 \
  :: atomic { !LFREE(L) && STUCK(L) -> goto busy } \
  :: atomic { deaths<DEATHS && me!=N -> deaths++; dead[me]=1; goto killed } \
  od

/* into the lane; the operation is the record that closes it, a chunk before it is nothing yet */
inline COMMIT(closes) {
   do
   :: STEP(e=le[me]);
      if
#ifndef BAD_NOE
      :: e>g ->
         STEP(g=G);
#ifndef BAD_HDR
         STEP(hep[me*OM+o]=g)
#endif
#endif
      :: else ->                                                                  /* lane.before_commit */
         STEP(if :: le[me]==e && lo[me]==o -> got=1;
#ifdef BAD_NOE
                if :: e<g -> le[me]=g :: else fi;
#else
                le[me]=g;
#endif
                lo[me]=o+1; com[me*OM+o]=1;                                       /* lane.committed */
                if :: closes -> cnt++; ends=ends+end; assert(hver[me*OM+o]==cnt) :: else fi;
                assert(disk[g]==NONE && durable<g);    /* the set of a computed batch is final */
                assert(g>=s0 && g>=re);                /* prefix-closed: real time, and same shard */
                assert(hep[me*OM+o]==g)
              :: else fi);
         if :: got -> got=0; break :: else fi
      fi
   od;
   e=0
}

#define CLEAR n=n; g=0; o=0; e=0; s0=0; vic=0; got=0; rs=0; rl=0; rt=0; i=0; k=0; xe=0; xo=0; E=0; mask=0; b=0; end=0; c0=0
proctype member(byte me) {
  byte n, vic, rs, rl, rt, i, k, xe, xo, E, mask, g, e, o, s0, b, c0; bit got, end;
endattach:
  atomic { slot[me]==FREE -> slot[me]=LIVE };
  do
  :: n<OPS ->
     n++;
     if :: end=1 :: end=0 fi;                        /* does it end a lease (run lock), or is it a checkpoint? */
     s0=retmax;                                      /* operation starts */
#ifdef BAD_GEARLY
     STEP(g=G);
#endif
     LOCK(shardL);
     assert(ra==rb && ra==cnt);                      /* every committed operation applied exactly once */
     if :: end -> LOCK(runL); assert(rcount==ends) :: else fi;
     c0=rcount;
     o=lo[me];
     STEP(tags++; dtag[me]=tags; dblk[me]=NONE; st[me]=TAKING);                     /* op.taking */
     b=0; do :: b<BLOCKS && blk[b]!=0 -> b++ :: else -> break od; assert(b<BLOCKS);
#ifdef BAD_TAKEFIRST
     STEP(if :: blk[b]==0 -> blk[b]=dtag[me] :: else -> assert(false) fi);
     STEP(dblk[me]=b);
#else
     STEP(dblk[me]=b);                                                              /* slab.named */
     STEP(if :: blk[b]==0 -> blk[b]=dtag[me] :: else -> assert(false) fi);          /* slab.taken; one shard: nobody else takes */
#endif
     STEP(dold[me]=rblk; otag[me]=blk[rblk]; dend[me]=end; dcnt[me]=c0+1);          /* the redo image */
#ifdef CHAIN
     if
     :: true ->
#ifdef BAD_CHAINPREP
        STEP(st[me]=PREP; doff[me]=o);
#endif
        STEP(g=G);
        STEP(hep[me*OM+o]=g; hver[me*OM+o]=0);
        COMMIT(0);                                                                  /* op.chunk */
        o=lo[me]
     :: true
     fi;
#endif
#ifdef BAD_TWO
     STEP(st[me]=PREP);
     STEP(doff[me]=o);
#else
     STEP(st[me]=PREP; doff[me]=o);                                                 /* op.prepared */
#endif
#ifndef BAD_GEARLY
     STEP(g=G);
#endif
     STEP(hep[me*OM+o]=g; hver[me*OM+o]=ra+1);
     COMMIT(1);
     APPLY(me,o);
     STEP(st[me]=IDLE);                                                             /* op.idle */
     if :: end -> STEP(assert(runL==ID(me)); runL=0) :: else fi;
     STEP(assert(shardL==ID(me)); shardL=0);
     atomic { if :: g>retmax -> retmax=g :: else fi };   /* returned without waiting */
     do
     :: atomic { durable>=g -> assert(disk[g]!=NONE && (disk[g]&BIT(me,o))); break }    /* acknowledged durable */
     :: durable<g -> if :: G==g -> SEALG(g) :: else fi; HELP()
     :: atomic { true -> break }                         /* does not ask for durability */
     od;
busy: atomic { CLEAR }
  :: else -> break
  od;
  atomic { fin[me]=1; goto end_of };
killed: atomic { CLEAR; goto endattach };
halted: atomic { CLEAR };
end_of: skip
}

/* seals for no reason, and may be stopped for ever (or merely late) anywhere */
proctype sealer() {
  byte i, xe, xo, E, n; byte me=N;
  do
  :: n<SEALS -> n++;
     atomic { E=G };
     SEALG(E);
     if :: goto end_of :: skip fi;
     RAISE(E);
     E=0
  :: else -> break
  od;
end_of: killed: halted: skip
}

#define OUT(x) (fin[x] || stp[x] || (dead[x] && reaper[x]!=0 && !OVER(reaper[x]) && stp[SLOT(reaper[x])]))
#if N==1
#define ALLOUT OUT(0)
#else
#define ALLOUT (OUT(0) && OUT(1))
#endif
proctype guardian(byte me) {
  byte vic, rs, rl, rt, i, k, xe, xo, E, mask, q; bit got;
  do
  :: atomic { dead[0] && slot[0]==LIVE && !OUT(0) -> vic=0 }; REAP(vic)
#if N>1
  :: atomic { dead[1] && slot[1]==LIVE && !OUT(1) -> vic=1 }; REAP(vic)
#endif
  :: atomic { ALLOUT -> vic=0; break }
  od;
  q=G;
  SEALG(q);
  do
  :: durable<q -> HELP()
  :: else -> break
  od;
  atomic {                     /* every committed record is on disk once */
    i=0; do :: i<N*OM ->
      mask=0; k=0; do :: k<EM -> if :: disk[k]!=NONE && (disk[k]&(1<<i)) -> mask++ :: else fi; k++ :: else -> break od;
      assert(mask==com[i]); i++ :: else -> break od; i=0; mask=0; k=0;
    if :: LFREE(shardL) && LFREE(runL) ->
       assert(ra==rb && ra==cnt && rcount==ends);
#if STOPS==0
       i=0; do :: i<BLOCKS -> assert((blk[i]!=0) == (i==rblk)); i++ :: else -> break od; i=0   /* nothing leaked, nothing freed twice */
#endif
       :: else fi };
killed: halted: busy: skip
}
#ifdef VISITOR
proctype visitor(byte me) {
  byte vic, rs, rl, rt; bit got;
  if
  :: atomic { dead[0] && slot[0]==LIVE -> vic=0 }; REAP(vic)
#if N>1
  :: atomic { dead[1] && slot[1]==LIVE -> vic=1 }; REAP(vic)
#endif
  :: atomic { ALLOUT -> skip }
  fi;
killed: halted: skip
}
#endif

init { atomic {
  byte z=0; do :: z<EM -> disk[z]=NONE; z++ :: else -> break od; z=0;
  slot[N]=LIVE; tags=1; blk[0]=1;
  run member(0);
#if N>1
  run member(1);
#endif
#if SEALS>0
  run sealer();
#endif
#ifdef VISITOR
  slot[N+1]=LIVE; run visitor(N+1);
#endif
  run guardian(N) } }
