/*
 * Where a snapshot's replay begins (snapshot.c), against commits, half-done sealing, chains of chunks and
 * operations that hold two locks: R = the open epoch, every lane is raised to R, only then are the descriptors
 * looked at (committed and not applied: the record's epoch; an open chain: the epoch stored before its first
 * chunk). The copy is published when everything up to the epoch that is open after it is durable.
 *   -DCHAIN       operations may be chains (op.chain, op.chunk, then the closing record)
 *   -DTWO         they may touch two records (shard and run)
 *   -DTSO         the load of the open epoch may overtake the store of PREPARED
 *   -DDEATHS=n    members die, and whoever reaps them; the next one goes on in the same lane
 * No other flag is the code. Each of these must give an error:
 *   BAD_R         R = the open epoch; no lane is raised
 *   BAD_CHAIN     open chains are not looked at (with CHAIN)
 *   BAD_NODESC    descriptors are not looked at
 *   BAD_SCANFIRST descriptors are looked at before the lanes are raised
 *   BAD_GEND      the epoch that has to be durable is read before the copy
 *   BAD_CHLATE    a chain's first epoch is stored after its first chunk is committed (with CHAIN)
 *   BAD_IDLEFIRST the reaper says IDLE before it has applied what was committed (with DEATHS)
 */
#ifndef N
#define N 2
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef SEALS
#define SEALS 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define OM (2*OPS)
#define IDLE 0
#define PREP 1
#define CHUNK 2
byte G=1;
byte le[N], lo[N];
byte hep[N*OM], hv[N*OM], hw[N*OM], hfe[N*OM]; bit com[N*OM];
byte st[N], doff[N], ce[N];
bit L0, L1, has0[N], has1[N];
byte ra0, rb0, ra1, rb1;
byte nfin, deaths;

#if DEATHS==0
#define MAYDIE
#else
#define MAYDIE if :: atomic { deaths<DEATHS -> deaths++; goto killed } :: skip fi;
#endif

inline COMMIT(g,o,closes) {
  do
  :: e=le[me];
     MAYDIE
     if
     :: e>g -> g=G; hep[me*OM+o]=g
     :: else -> atomic { if :: le[me]==e -> le[me]=g; lo[me]=o+1; got=1; com[me*OM+o]=closes :: else fi };   /* lane.committed */
        if :: got -> got=0; break :: else fi
     fi
  od; e=0;
  MAYDIE
}
/* record.open .. record.close, of one record or of two */
#define APPLY(k) ra0=hv[me*OM+(k)]; MAYDIE rb0=ra0; MAYDIE \
  if :: hw[me*OM+(k)]!=0 -> ra1=hw[me*OM+(k)]; MAYDIE rb1=ra1; MAYDIE :: else fi
proctype member(byte me) {
  byte n, g, e, o, fe; bit got, two;
start:
  do
  :: n<OPS ->
     n++; fe=0;
#ifdef CHAIN
     if
     :: o=lo[me];
        g=G;
        MAYDIE
#ifndef BAD_CHLATE
        ce[me]=g;                                    /* op.chain */
        MAYDIE
#endif
        atomic { hep[me*OM+o]=g; hv[me*OM+o]=0; hw[me*OM+o]=0 };
        COMMIT(g,o,0);
#ifdef BAD_CHLATE
        ce[me]=g;
#endif
        fe=hep[me*OM+o]                              /* op.chunk */
     :: skip
     fi;
#endif
#ifdef TWO
     if :: two=1 :: two=0 fi;
#endif
     atomic { !L0 -> L0=1; has0[me]=1 };
     if :: two -> atomic { !L1 -> L1=1; has1[me]=1 } :: else fi;
     MAYDIE
     o=lo[me];
#ifdef TSO
     if
     :: g=G; atomic { st[me]=PREP; doff[me]=o }
     :: atomic { st[me]=PREP; doff[me]=o }; g=G
     fi;
#else
     atomic { st[me]=PREP; doff[me]=o }; g=G;        /* op.prepared */
#endif
     MAYDIE
     atomic { hep[me*OM+o]=g; hv[me*OM+o]=ra0+1; hw[me*OM+o]=(two -> ra1+1 : 0); hfe[me*OM+o]=fe };
     COMMIT(g,o,1);
     APPLY(o);
     st[me]=IDLE;                                    /* op.idle */
     MAYDIE
     if :: two -> atomic { L1=0; has1[me]=0 } :: else fi;
     atomic { L0=0; has0[me]=0 };
     MAYDIE
     ce[me]=0;                                       /* rf_op_end: closed */
     atomic { two=0; g=0; o=0; fe=0 }
  :: else -> break
  od;
  goto end_of;
killed: atomic { g=0; e=0; o=0; fe=0; got=0; two=0 };
  /* its reaper; one that dies is replaced by one that starts over */
#ifdef BAD_IDLEFIRST
  o=(st[me]==PREP && lo[me]>doff[me]);
  st[me]=IDLE;
  if :: o -> o=0; APPLY(doff[me]) :: else fi;
  ce[me]=0;
#else
  if :: st[me]==PREP && lo[me]>doff[me] -> APPLY(doff[me]) :: else fi;   /* redo */
  ce[me]=0;                                          /* reap.settled */
  MAYDIE
  st[me]=IDLE;                                       /* reap.idle */
  MAYDIE
#endif
  atomic {                                           /* reap.generation: its locks are free */
    if :: has0[me] -> L0=0; has0[me]=0 :: else fi;
    if :: has1[me] -> L1=0; has1[me]=0 :: else fi };
  goto start;
end_of:
  nfin++
}
inline RAISE(E) {
  i=0;
  do
  :: i<N -> atomic { xe=le[i]; xo=lo[i] };
     if :: xe>E -> i++ :: else -> atomic { if :: le[i]==xe && lo[i]==xo -> le[i]=E+1 :: else fi } fi; xe=0; xo=0
  :: else -> break
  od; i=0
}
proctype sealer() { byte i, xe, xo, E, n;
  do
  :: n<SEALS -> n++; E=G; atomic { if :: G==E -> G=E+1 :: else fi };   /* log.before_seal, log.sealed */
     if :: goto end :: skip fi; RAISE(E); E=0
  :: else -> break
  od; end: skip }

inline SCAN() {
  i=0;
  do
  :: i<N ->
     c=ce[i];
     atomic { s=st[i]; o=doff[i] };
#ifndef BAD_CHAIN
     if :: c!=0 && c<r -> r=c :: else fi;
#endif
     if
     :: s==PREP ->
        xo=lo[i];
        if
        :: xo>o -> if :: hep[i*OM+o]<r -> r=hep[i*OM+o] :: else fi
        :: else -> skip                              /* not committed: it does not count */
        fi
     :: else
     fi; i++; xo=0; xe=0; s=0; o=0; c=0
  :: else -> break
  od; i=0
}
proctype snapshot() {
  byte i, xe, xo, r, c, o, s, v0, v1, ge;
  r=G;                                               /* snapshot.begun */
#ifdef BAD_SCANFIRST
  SCAN();
  RAISE(r-1);
#else
#ifndef BAD_R
  RAISE(r-1);                                        /* snapshot.raised */
#endif
#ifndef BAD_NODESC
  SCAN();                                            /* snapshot.scanned */
#endif
#endif
#ifdef BAD_GEND
  ge=G;
#endif
  atomic { ra0==rb0 -> v0=ra0 };
  atomic { ra1==rb1 -> v1=ra1 };
#ifndef BAD_GEND
  ge=G;                                              /* snapshot.copied; then snapshot.durable, snapshot.published */
#endif
  atomic { nfin==N -> i=0;
    do
    :: i<N*OM ->
       if
       :: com[i] ->
          if :: hv[i]>v0 || hw[i]>v1 -> assert(hep[i]>=r); assert(hfe[i]==0 || hfe[i]>=r) :: else fi;   /* what the copy lacks is replayed, whole */
          if :: hv[i]<=v0 || (hw[i]!=0 && hw[i]<=v1) -> assert(hep[i]<=ge) :: else fi                    /* what the copy has is durable when it is published */
       :: else
       fi; i++
    :: else -> break
    od }
}
init { atomic { run member(0);
#if N>1
 run member(1);
#endif
#if N>2
 run member(2);
#endif
 run sealer(); run snapshot() } }
