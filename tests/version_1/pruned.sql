PRAGMA application_id = 1668249209;
PRAGMA user_version = 1;
CREATE TABLE cells (
  desk TEXT NOT NULL,
  space TEXT NOT NULL,
  line INTEGER NOT NULL CHECK (line >= 0),
  name TEXT NOT NULL,
  counters TEXT NOT NULL,
  seen TEXT NOT NULL,
  PRIMARY KEY (desk, space, line)
) STRICT, WITHOUT ROWID;
INSERT INTO "cells" VALUES('','',0,'z0:0','[1,54,1,18,7,0,3,5,0,0]','[[1,13],[0,12]]');
INSERT INTO "cells" VALUES('','',1,'z1:1','[2,24,4,9,3,0,0,2,0,0]','[[1,8],[0,4]]');
INSERT INTO "cells" VALUES('','',2,'z1:0','[3,29,4,8,4,0,3,3,0,0]','[[0,8],[1,4]]');
INSERT INTO "cells" VALUES('','',3,'z2:2','[8,9,9,3,1,0,0,1,0,0]','[[1,3],[0,1]]');
INSERT INTO "cells" VALUES('','',4,'z2:3','[11,11,11,3,1,0,0,1,0,0]','[[0,2],[1,2]]');
INSERT INTO "cells" VALUES('','',5,'z2:1','[12,17,16,4,2,0,2,1,0,0]','[[0,4],[1,2]]');
INSERT INTO "cells" VALUES('','',6,'z2:0','[20,8,8,1,1,0,0,1,0,0]','[[1,1],[0,1]]');
INSERT INTO "cells" VALUES('','',7,'z3:3','[48,1,1,1,0,0,0,0,0,0]','[[1,1]]');
INSERT INTO "cells" VALUES('south','',0,'z0:0','[1,55,1,18,7,0,3,5,0,0]','[[1,13],[0,12]]');
INSERT INTO "cells" VALUES('south','',1,'z1:1','[2,29,4,9,8,0,0,7,0,0]','[[1,13],[0,4]]');
INSERT INTO "cells" VALUES('south','',2,'z1:0','[3,37,4,9,10,0,4,9,0,0]','[[1,11],[0,8]]');
INSERT INTO "cells" VALUES('south','',3,'z2:2','[8,9,9,3,1,0,0,1,0,0]','[[1,3],[0,1],["red",1]]');
INSERT INTO "cells" VALUES('south','',4,'z2:3','[11,12,11,3,1,0,0,1,0,0]','[[0,2],[1,2]]');
INSERT INTO "cells" VALUES('south','',5,'z2:1','[12,18,16,5,2,0,3,1,0,0]','[[0,4],[1,3]]');
INSERT INTO "cells" VALUES('south','',6,'z2:0','[20,8,8,1,1,0,0,1,0,0]','[[1,1],[0,1]]');
INSERT INTO "cells" VALUES('south','',7,'z3:3','[48,2,1,2,0,0,1,0,0,0]','[[1,2]]');
CREATE TABLE counters (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES('z0:0','','a',1,0);
INSERT INTO "counters" VALUES('z1:0','','a',3,1);
INSERT INTO "counters" VALUES('z1:0','','b',1,1);
INSERT INTO "counters" VALUES('z1:0','south','a',1,1);
INSERT INTO "counters" VALUES('z1:0','south','b',6,6);
INSERT INTO "counters" VALUES('z1:1','','a',3,0);
INSERT INTO "counters" VALUES('z1:1','','b',1,0);
INSERT INTO "counters" VALUES('z1:1','south','b',5,5);
INSERT INTO "counters" VALUES('z2:0','client/a','a',1,0);
INSERT INTO "counters" VALUES('z2:0','client/a','b',1,1);
INSERT INTO "counters" VALUES('z2:1','','a',3,2);
INSERT INTO "counters" VALUES('z2:1','','b',1,0);
INSERT INTO "counters" VALUES('z2:1','client/a','b',1,1);
INSERT INTO "counters" VALUES('z2:1','south','a',1,1);
INSERT INTO "counters" VALUES('z2:2','','a',2,0);
INSERT INTO "counters" VALUES('z2:2','client/a','a',1,0);
INSERT INTO "counters" VALUES('z2:2','client/a','b',1,1);
INSERT INTO "counters" VALUES('z2:3','','a',2,0);
INSERT INTO "counters" VALUES('z2:3','client/a','a',1,0);
INSERT INTO "counters" VALUES('z2:3','client/a','b',1,1);
INSERT INTO "counters" VALUES('z3:3','client/a','a',1,0);
INSERT INTO "counters" VALUES('z3:3','south','a',1,1);
CREATE TABLE desks (
  desk TEXT PRIMARY KEY,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  oldest INTEGER NOT NULL CHECK (oldest >= 1),
  following INTEGER NOT NULL CHECK (following >= oldest),
  doubts TEXT NOT NULL,
  latest TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "desks" VALUES('',54,1,13,'{"":[0,0,0,0]}','[54,1]');
INSERT INTO "desks" VALUES('south',43,7,21,'{"":[0,0,0,0]}','null');
CREATE TABLE folded (
  cell TEXT NOT NULL,
  source TEXT NOT NULL,
  arm TEXT NOT NULL,
  labels INTEGER NOT NULL CHECK (labels >= 1),
  right INTEGER NOT NULL CHECK (right BETWEEN 0 AND labels),
  PRIMARY KEY (cell, source, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO "folded" VALUES('z0:0','','a',1,0);
INSERT INTO "folded" VALUES('z1:0','','a',3,1);
INSERT INTO "folded" VALUES('z1:0','','b',1,1);
INSERT INTO "folded" VALUES('z1:0','south','a',1,1);
INSERT INTO "folded" VALUES('z1:0','south','b',3,3);
INSERT INTO "folded" VALUES('z1:1','','a',3,0);
INSERT INTO "folded" VALUES('z1:1','','b',1,0);
INSERT INTO "folded" VALUES('z1:1','south','b',2,2);
INSERT INTO "folded" VALUES('z2:1','','a',3,2);
INSERT INTO "folded" VALUES('z2:1','','b',1,0);
INSERT INTO "folded" VALUES('z2:2','','a',2,0);
INSERT INTO "folded" VALUES('z2:3','','a',2,0);
CREATE TABLE folded_asked (
  cell TEXT NOT NULL,
  peer TEXT NOT NULL,
  answers INTEGER NOT NULL CHECK (answers >= 1),
  labels INTEGER NOT NULL CHECK (labels BETWEEN 0 AND answers),
  PRIMARY KEY (cell, peer)
) STRICT, WITHOUT ROWID;
CREATE TABLE lot_labels (
  lot INTEGER NOT NULL REFERENCES lots,
  part INTEGER NOT NULL CHECK (part >= 0),
  labels INTEGER NOT NULL CHECK (labels >= 1),
  rows BLOB NOT NULL CHECK (length(rows) = 4 * labels),
  truths TEXT NOT NULL,
  right BLOB NOT NULL CHECK (length(right) = labels),
  PRIMARY KEY (lot, part)
) STRICT, WITHOUT ROWID;
CREATE TABLE lots (
  lot INTEGER PRIMARY KEY CHECK (lot >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  rows INTEGER NOT NULL CHECK (rows >= 1),
  space TEXT NOT NULL,
  kinds TEXT NOT NULL,
  which BLOB NOT NULL CHECK (length(which) = 4 * rows),
  contexts BLOB NOT NULL CHECK (length(contexts) % (8 * rows) = 0),
  predictions TEXT NOT NULL,
  answers TEXT,
  helped TEXT,
  is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),
  UNIQUE (source, id)
) STRICT;
INSERT INTO "lots" VALUES(6,'','18','',34,9,'','[[3145729,"z2:2","explore","a",0.0,""],[4194305,"z2:3","explore","a",0.0,""],[5242881,"z2:1","explore","a",0.0,""],[5242885,"z2:1","explore","b",0.0,""],[5242888,"z2:1","train","south",0.01,"south"]]',X'020000000000000000000000010000000200000003000000030000000400000001000000',X'8E147353FD5CD13F4599E1661B4CE43FC056F3D05EE6E63F1D50346D48F7ED3F6687D27F1CFFDB3FC8442B2CE386D03F822F63543D64D33F04771770ABB0D53FE62CA9398B3AE93F','[0,0,0,0,1,0,1,1,0]',NULL,'{"7":["c","7c65c1e582e2e662f728b4fa42485e3a:7",0]}',1);
CREATE TABLE outbox (
  peer TEXT NOT NULL,
  id TEXT NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (peer, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE site (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  name TEXT NOT NULL,
  shape TEXT NOT NULL,
  starts INTEGER NOT NULL CHECK (starts >= 0)
) STRICT;
INSERT INTO "site" VALUES(1,'north','arm: a
arm: b
arm: south
cells: halved at 1 * 2^(2 * (level + 0)) arrivals, down to level 40
dimensions: 1
preset: dcza
forgets: nothing',1);
CREATE TABLE tickets (
  desk TEXT NOT NULL,
  ticket INTEGER NOT NULL CHECK (ticket >= 1),
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  slot INTEGER NOT NULL CHECK (slot >= 0),
  cell TEXT NOT NULL,
  code INTEGER NOT NULL CHECK (code >= 0),
  phase TEXT NOT NULL CHECK (phase IN ('train', 'explore', 'exploit', 'serve', 'recall')),
  arm TEXT NOT NULL,
  function TEXT NOT NULL,
  price REAL NOT NULL,
  space TEXT NOT NULL,
  context TEXT NOT NULL,
  prediction TEXT,
  answer TEXT,
  peer TEXT NOT NULL,
  peer_ticket TEXT,
  width INTEGER NOT NULL,
  truth TEXT,
  is_right INTEGER CHECK (is_right IN (0, 1)),
  CHECK ((truth IS NULL) = (is_right IS NULL)),
  PRIMARY KEY (desk, ticket),
  UNIQUE (source, id)
) STRICT, WITHOUT ROWID;
INSERT INTO "tickets" VALUES('',1,'client/a','one0','',43,'z2:0',6291457,'explore','a','a',0.0,'','[0.0]','0','0','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('',2,'client/a','one1','',44,'z2:0',6291457,'explore','a','a',0.0,'','[0.08333333333333333]','0','0','',NULL,0,'1',0);
INSERT INTO "tickets" VALUES('',3,'client/a','one2','',45,'z2:0',6291461,'explore','b','b',0.0,'','[0.16666666666666666]','0','0','',NULL,0,'0',1);
INSERT INTO "tickets" VALUES('',4,'client/a','one3','',46,'z2:1',5242881,'explore','a','a',0.0,'','[0.25]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('',5,'client/a','one4','',47,'z2:1',5242885,'explore','b','b',0.0,'','[0.3333333333333333]','0','0','',NULL,0,'0',1);
INSERT INTO "tickets" VALUES('',6,'client/a','one5','',48,'z3:3',7340033,'explore','a','a',0.0,'','[0.4166666666666667]','0','0','',NULL,0,'1',0);
INSERT INTO "tickets" VALUES('',7,'client/a','one6','',49,'z2:2',3145729,'explore','a','a',0.0,'','[0.5]','0','0','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('',8,'client/a','one7','',50,'z2:2',3145729,'explore','a','a',0.0,'','[0.5833333333333334]','0','0','',NULL,0,'1',0);
INSERT INTO "tickets" VALUES('',9,'client/a','one8','',51,'z2:2',3145733,'explore','b','b',0.0,'','[0.6666666666666666]','0','0','',NULL,0,'0',1);
INSERT INTO "tickets" VALUES('',10,'client/a','one9','',52,'z2:3',4194305,'explore','a','a',0.0,'','[0.75]','0','0','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('',11,'client/a','one10','',53,'z2:3',4194305,'explore','a','a',0.0,'','[0.8333333333333334]','1','1','',NULL,0,'0',0);
INSERT INTO "tickets" VALUES('',12,'client/a','one11','',54,'z2:3',4194309,'explore','b','b',0.0,'','[0.9166666666666666]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',7,'south','14','',34,'z1:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',8,'south','15','',34,'z1:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',9,'south','16','',34,'z1:0',2097159,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',10,'south','17','',34,'z1:0',2097159,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',11,'south','19','',43,'z1:0',2097159,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',12,'south','s0','',5,'z0:0',3,'recall','','(labels seen)',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',13,'south','s1','',6,'z1:1',1048583,'serve','b','b',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',14,'south','s2','',7,'z1:0',2097159,'serve','b','b',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',15,'south','s3','',8,'z2:2',3145731,'recall','','(labels seen)',0.0,'','[]','1','1','',NULL,0,'"red"',0);
INSERT INTO "tickets" VALUES('south',16,'south','s4','',9,'z2:3',4194311,'serve','b','b',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',17,'south','s5','',10,'z2:1',5242883,'serve','a','a',0.0,'','[]','1','1','',NULL,0,'true',1);
INSERT INTO "tickets" VALUES('south',18,'south','s6','',11,'z2:0',6291459,'recall','','(labels seen)',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
INSERT INTO "tickets" VALUES('south',19,'south','s7','',12,'z3:3',7340035,'serve','a','a',0.0,'','[]','1','1','',NULL,0,'1',1);
INSERT INTO "tickets" VALUES('south',20,'south','s8','',13,'z0:0',7,'serve','b','b',0.0,'','[]','1','1','',NULL,0,NULL,NULL);
