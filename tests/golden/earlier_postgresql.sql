SET check_function_bodies = false;
CREATE SCHEMA dpvb;
CREATE FUNCTION dpvb.check_entry() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    last dpvb.entry;
    newest text;
    cap bigint;
BEGIN
    SELECT * INTO last FROM dpvb.entry ORDER BY seq DESC LIMIT 1;
    IF NEW.seq <> coalesce(last.seq, 0) + 1 OR NEW.prev <> coalesce(last.hash, NEW.prev) THEN
        RAISE EXCEPTION 'row % does not follow the last row', NEW.seq;
    END IF;
    IF NEW.totals = '' THEN
        RETURN NEW;
    END IF;
    SELECT totals INTO newest FROM dpvb.entry
        WHERE dataset = NEW.dataset AND totals <> '' ORDER BY seq DESC LIMIT 1;
    IF EXISTS (
        SELECT FROM ROWS FROM (
            json_array_elements_text(NEW.totals::json),
            json_array_elements_text(NEW.cost::json),
            json_array_elements_text(coalesce(newest, NEW.totals)::json)
        ) AS orders (total, cost, before)
        WHERE total IS NULL OR cost IS NULL OR before IS NULL OR total::numeric < 0 OR total::numeric <> CASE
            WHEN newest IS NULL THEN least(4611686018427387904, cost::numeric)
            WHEN before::numeric >= 4611686018427387904 THEN 4611686018427387904
            ELSE least(4611686018427387904, before::numeric + cost::numeric)
        END
    ) THEN
        RAISE EXCEPTION 'the totals of row % are not those before it and its cost', NEW.seq;
    END IF;
    SELECT units INTO cap FROM dpvb.entry WHERE key = 'dataset/' || NEW.dataset;
    IF cap IS NULL OR (NEW.units > cap AND NEW.kind <> 'sole') THEN
        RAISE EXCEPTION 'row % is above the cap of its data set', NEW.seq;
    END IF;
    RETURN NEW;
END$$;
CREATE FUNCTION dpvb.check_head() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.seq < OLD.seq OR NEW.seq <> (SELECT max(seq) FROM dpvb.entry) THEN
        RAISE EXCEPTION 'the head is not the last row';
    END IF;
    RETURN NEW;
END$$;
CREATE FUNCTION dpvb.refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'rows of a ledger are only ever appended';
END$$;
CREATE TABLE dpvb.entry (
    seq bigint NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    dataset text NOT NULL,
    run text NOT NULL,
    attempt bigint NOT NULL,
    form text NOT NULL,
    cost text NOT NULL,
    totals text NOT NULL,
    units bigint NOT NULL,
    body text NOT NULL,
    created text NOT NULL,
    prev text NOT NULL,
    hash text NOT NULL
);
CREATE TABLE dpvb.head (
    one boolean NOT NULL,
    seq bigint NOT NULL,
    text text NOT NULL,
    CONSTRAINT head_one_check CHECK (one)
);
CREATE TABLE dpvb.ledger (
    uuid text NOT NULL,
    format bigint NOT NULL,
    created text NOT NULL
);
INSERT INTO dpvb.entry VALUES (1, 'dataset', 'dataset/people', 'people', '', 0, '', '', '', 2000000000, '{"delta":1e-05,"epsilon":2.0,"name":"people","neighboring_relation":"add_or_remove_one","part_of":null,"unit":"row"}', '2026-11-22T14:27:25+00:00', '05159f59b7614d6e725d14c280af39ca702bc6706c447426dcebb5e214b76641', '92503674f8d58c06e09e2d0573b1b08fdd16a628b62d89061348179c0e546c40');
INSERT INTO dpvb.entry VALUES (2, 'charge', '["charge","a",0,"plan",null]', 'people', 'a', 0, 'a8fe0c1cac7b8107ac03863e417d1f45afbf7555cfa27d3a6b04b0c851e6507a', '[1269532,1289063,1328126,1406251,1562501,1718751,1875001,2031251,2187501,2343751,2500001,2812501,3125001,3437501,3750001,4375001,5000001,5937501,6875001,8125001,9375001,11250001,13125001,15625001,18750001,22500001,26250001,31250001,37500001,45000001,53750001,65000001,77500001,95000001,120000001,160000001,225000001,320000001,500000001,800000001,1280000002,2560000003,5120000006,10240000011,20480000021,81920000082]', '[1269532,1289063,1328126,1406251,1562501,1718751,1875001,2031251,2187501,2343751,2500001,2812501,3125001,3437501,3750001,4375001,5000001,5937501,6875001,8125001,9375001,11250001,13125001,15625001,18750001,22500001,26250001,31250001,37500001,45000001,53750001,65000001,77500001,95000001,120000001,160000001,225000001,320000001,500000001,800000001,1280000002,2560000003,5120000006,10240000011,20480000021,81920000082]', 261831193, '{"cost":{"events":[{"noise_multiplier":20.0,"num_steps":1,"sampler":"full_batch","sampling_prob":1.0,"swap_ratio":2.0}],"form":"composition","neighboring_relation":"add_or_remove_one"},"favoured":22,"kind":"plan","payload":{},"plan":"plan","steps":null}', '2026-11-22T14:27:25+00:00', '92503674f8d58c06e09e2d0573b1b08fdd16a628b62d89061348179c0e546c40', '4577b4f786bc683eae0ee0016c6766b701e1e6fcafe031237d1df772d67c1c84');
INSERT INTO dpvb.entry VALUES (3, 'event', '["event","a",0,"started",0]', 'people', 'a', 0, '', '', '', 0, '{"digest":null,"state":"started","step":0}', '2026-11-22T14:27:25+00:00', '4577b4f786bc683eae0ee0016c6766b701e1e6fcafe031237d1df772d67c1c84', 'f6117f87568f88e6a2c00c12ba26bdbff6888d88f329dd5c0c513e85aca0a773');
INSERT INTO dpvb.entry VALUES (4, 'event', '["event","a",0,"released",0]', 'people', 'a', 0, '', '', '', 0, '{"digest":"d","state":"released","step":0}', '2026-11-22T14:27:25+00:00', 'f6117f87568f88e6a2c00c12ba26bdbff6888d88f329dd5c0c513e85aca0a773', 'a48dea3043edf499b332ddf9e28938ce2204ab37b066891b7ab7e00d42b58d40');
INSERT INTO dpvb.entry VALUES (5, 'event', '["event","a",0,"finished",null]', 'people', 'a', 0, '', '', '', 0, '{"digest":null,"state":"finished","step":null}', '2026-11-22T14:27:25+00:00', 'a48dea3043edf499b332ddf9e28938ce2204ab37b066891b7ab7e00d42b58d40', '2f683c4517bb21c8c6b0e3cb618087bbfeb3d2fa83e20f27e5db05b90391195d');
INSERT INTO dpvb.entry VALUES (6, 'charge', '["charge","b",0,"plan",null]', 'people', 'b', 0, '647fba8bb666bc73e73bc0f5e46d4c721d78f3ac51115fbe84c54f29f8610358', '[1269532,1289063,1328126,1406251,1562501,1718751,1875001,2031251,2187501,2343751,2500001,2812501,3125001,3437501,3750001,4375001,5000001,5937501,6875001,8125001,9375001,11250001,13125001,15625001,18750001,22500001,26250001,31250001,37500001,45000001,53750001,65000001,77500001,95000001,120000001,160000001,225000001,320000001,500000001,800000001,1280000002,2560000003,5120000006,10240000011,20480000021,81920000082]', '[2539064,2578126,2656252,2812502,3125002,3437502,3750002,4062502,4375002,4687502,5000002,5625002,6250002,6875002,7500002,8750002,10000002,11875002,13750002,16250002,18750002,22500002,26250002,31250002,37500002,45000002,52500002,62500002,75000002,90000002,107500002,130000002,155000002,190000002,240000002,320000002,450000002,640000002,1000000002,1600000002,2560000004,5120000006,10240000012,20480000022,40960000042,163840000164]', 370465826, '{"cost":{"events":[{"noise_multiplier":40.0,"num_steps":4,"sampler":"full_batch","sampling_prob":1.0,"swap_ratio":2.0}],"form":"composition","neighboring_relation":"add_or_remove_one"},"favoured":22,"kind":"plan","payload":{},"plan":"plan","steps":null}', '2026-11-22T14:27:25+00:00', '2f683c4517bb21c8c6b0e3cb618087bbfeb3d2fa83e20f27e5db05b90391195d', 'b9274c9dc7702cba4dee5303ad9839fe848ee85e80c15ab0415b1a99b944357a');
INSERT INTO dpvb.entry VALUES (7, 'event', '["event","b",0,"started",0]', 'people', 'b', 0, '', '', '', 0, '{"digest":null,"state":"started","step":0}', '2026-11-22T14:27:25+00:00', 'b9274c9dc7702cba4dee5303ad9839fe848ee85e80c15ab0415b1a99b944357a', 'a74e62b77aa2c458bb7cc1b413737e7f7542d0e23c39297fd57182b4fed8b204');
INSERT INTO dpvb.entry VALUES (8, 'charge', '["charge","c",0,"plan",null]', 'people', 'c', 0, '647fba8bb666bc73e73bc0f5e46d4c721d78f3ac51115fbe84c54f29f8610358', '[1269532,1289063,1328126,1406251,1562501,1718751,1875001,2031251,2187501,2343751,2500001,2812501,3125001,3437501,3750001,4375001,5000001,5937501,6875001,8125001,9375001,11250001,13125001,15625001,18750001,22500001,26250001,31250001,37500001,45000001,53750001,65000001,77500001,95000001,120000001,160000001,225000001,320000001,500000001,800000001,1280000002,2560000003,5120000006,10240000011,20480000021,81920000082]', '[3808596,3867189,3984378,4218753,4687503,5156253,5625003,6093753,6562503,7031253,7500003,8437503,9375003,10312503,11250003,13125003,15000003,17812503,20625003,24375003,28125003,33750003,39375003,46875003,56250003,67500003,78750003,93750003,112500003,135000003,161250003,195000003,232500003,285000003,360000003,480000003,675000003,960000003,1500000003,2400000003,3840000006,7680000009,15360000018,30720000033,61440000063,245760000246]', 454621570, '{"cost":{"events":[{"noise_multiplier":40.0,"num_steps":4,"sampler":"full_batch","sampling_prob":1.0,"swap_ratio":2.0}],"form":"composition","neighboring_relation":"add_or_remove_one"},"favoured":22,"kind":"plan","payload":{},"plan":"plan","steps":null}', '2026-11-22T14:27:25+00:00', 'a74e62b77aa2c458bb7cc1b413737e7f7542d0e23c39297fd57182b4fed8b204', '00964146bd46b8fc59b032a2d858f2f19d09251a171e6734fe1e5e7b8b36a9c0');
INSERT INTO dpvb.entry VALUES (9, 'event', '["event","c",0,"abandoned",null]', 'people', 'c', 0, '', '', '', 0, '{"digest":null,"state":"abandoned","step":null}', '2026-11-22T14:27:25+00:00', '00964146bd46b8fc59b032a2d858f2f19d09251a171e6734fe1e5e7b8b36a9c0', '555e9f14679f9d69ac93048b4941656f7e1faef3df9bff36db398f3422ed122d');
INSERT INTO dpvb.entry VALUES (10, 'refund', '["refund","c"]', 'people', 'c', 0, '433bfa235b34a81d6d4375ad0e632fe0e049fcdeee2badef3673c3d61040c2e7', '[-952148,-966796,-996093,-1054687,-1171874,-1289062,-1406249,-1523437,-1640624,-1757812,-1874999,-2109374,-2343749,-2578124,-2812499,-3281249,-3749999,-4453124,-5156249,-6093749,-7031249,-8437499,-9843749,-11718749,-14062499,-16874999,-19687499,-23437499,-28124999,-33749999,-40312499,-48749999,-58124999,-71249999,-89999999,-119999999,-168749999,-239999999,-374999999,-599999999,-959999999,-1919999998,-3839999996,-7679999992,-15359999984,-61439999938]', '[2856448,2900393,2988285,3164066,3515629,3867191,4218754,4570316,4921879,5273441,5625004,6328129,7031254,7734379,8437504,9843754,11250004,13359379,15468754,18281254,21093754,25312504,29531254,35156254,42187504,50625004,59062504,70312504,84375004,101250004,120937504,146250004,174375004,213750004,270000004,360000004,506250004,720000004,1125000004,1800000004,2880000007,5760000011,11520000022,23040000041,46080000079,184320000308]', 394215828, '{"cost":{"events":[{"noise_multiplier":40.0,"num_steps":3,"sampler":"full_batch","sampling_prob":1.0,"swap_ratio":2.0}],"form":"composition","neighboring_relation":"add_or_remove_one"},"favoured":22}', '2026-11-22T14:27:25+00:00', '555e9f14679f9d69ac93048b4941656f7e1faef3df9bff36db398f3422ed122d', '12796f3ca137c242035f423baadfa9a5c6ecd32e5a5c4be171b1508eacd590d4');
INSERT INTO dpvb.head VALUES (true, 10, '{"head":"{\"datasets\":{\"people\":[1,10]},\"file\":\"\",\"format\":1,\"hash\":\"12796f3ca137c242035f423baadfa9a5c6ecd32e5a5c4be171b1508eacd590d4\",\"seq\":10,\"uuid\":\"2a34ae45-5a11-4860-85e0-8fe26d5232c9\"}","sha256":"05836144609db2975f2932654e3dc29af924517466449a1e4903a0b467b65a72"}');
INSERT INTO dpvb.ledger VALUES ('2a34ae45-5a11-4860-85e0-8fe26d5232c9', 1, '2026-11-22T14:27:24+00:00');
ALTER TABLE ONLY dpvb.entry
    ADD CONSTRAINT entry_key_key UNIQUE (key);
ALTER TABLE ONLY dpvb.entry
    ADD CONSTRAINT entry_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY dpvb.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);
ALTER TABLE ONLY dpvb.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (uuid);
CREATE INDEX entry_dataset ON dpvb.entry USING btree (dataset, seq) WHERE (totals <> ''::text);
CREATE INDEX entry_form ON dpvb.entry USING btree (dataset, form, kind) WHERE (totals <> ''::text);
CREATE INDEX entry_run ON dpvb.entry USING btree (run, seq);
CREATE TRIGGER entry_follows BEFORE INSERT ON dpvb.entry FOR EACH ROW EXECUTE FUNCTION dpvb.check_entry();
CREATE TRIGGER entry_stays BEFORE DELETE OR UPDATE OR TRUNCATE ON dpvb.entry FOR EACH STATEMENT EXECUTE FUNCTION dpvb.refuse();
CREATE TRIGGER head_follows BEFORE UPDATE ON dpvb.head FOR EACH ROW EXECUTE FUNCTION dpvb.check_head();
CREATE TRIGGER head_stays BEFORE DELETE OR TRUNCATE ON dpvb.head FOR EACH STATEMENT EXECUTE FUNCTION dpvb.refuse();
CREATE TRIGGER ledger_stays BEFORE DELETE OR UPDATE OR TRUNCATE ON dpvb.ledger FOR EACH STATEMENT EXECUTE FUNCTION dpvb.refuse();
